"""`python -m tangram_workers.cli`."""

from tangram_workers.cli.main import main

main()
