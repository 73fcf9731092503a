"""Bounds on what one action may hold."""

from __future__ import annotations

#: Longest encoded form of one action. Larger inputs belong in files that the action reads.
MAX_PAYLOAD_BYTES = 4 * 1024 * 1024
#: Linux refuses a longer single argument or variable (MAX_ARG_STRLEN).
MAX_ARGUMENT_LENGTH = 128 * 1024 - 1
#: Bytes of all arguments and variables together; Linux allows no more than twice that.
MAX_ARGUMENTS_BYTES = 1024 * 1024
MAX_FILES = 64
MAX_PATH_LENGTH = 1000
#: Linux refuses longer names of files and folders (NAME_MAX).
MAX_FILE_NAME_BYTES = 255
MAX_ID_LENGTH = 200
MIN_TIMEOUT_S = 0.001
MAX_TIMEOUT_S = 7 * 24 * 3600.0
