"""`python -m millstream.pyflink job.py [args]` is `millstream run --pyflink job.py [args]`."""

import sys

from millstream.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["run", "--pyflink"]
    main()
