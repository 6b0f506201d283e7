import os
import signal
import sys

from kinetic_runner.child import call

over = []


def returns():
    return over.append(1) or "value"


def fails():
    return over.append(1) or 1 / 0


function = globals()[sys.argv[1]]
line, came = 0, True
while came:
    line, came, passed = line + 1, False, 0
    over.clear()
    stopping = call.Stopping.install()

    def trace(frame, event, _):
        global came, passed
        # What a line of the function's itself is interrupted by has come before its end.
        if over and event == "line" and frame.f_code.co_filename == call.__file__:
            passed += 1
            if passed == line:
                came = True
                os.kill(os.getpid(), signal.SIGTERM)
        return trace

    sys.settrace(trace)
    ending = call.invoke(function, (), {}, stopping)
    sys.settrace(None)
    assert (stopping.came_late, stopping.asked) == (True, came), line
    print(type(ending).__name__, str(ending[0]))
