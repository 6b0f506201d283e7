import os
import sys

from cases import case, main


@case
def closed():
    sys.stdout.close()
    return 1


@case
def closed_and_an_error():
    sys.stdout.close()
    sys.stderr.close()
    raise ValueError("x")


@case
def descriptors_closed():
    os.close(1)
    os.close(2)
    return 1


@case
def taken_away():
    sys.stdout = sys.stderr = None
    return 1


@case
def reads_input():
    return input("? ")


@case
def environment_cleared():
    os.environ.clear()
    return 1


@case
def folder_removed():
    import shutil

    here = os.getcwd()
    os.chdir("/")
    shutil.rmtree(here)
    return 1


if __name__ == "__main__":
    main()
