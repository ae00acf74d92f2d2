"""``python -m proxy``: the same as the command ``privacy-proxy``."""

from proxy.cli import main

if __name__ == "__main__":
    main()
