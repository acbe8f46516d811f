"""``python -m regard``, which is how torchrun starts the program on several workers."""

from regard.cli import main

if __name__ == "__main__":
    main()
