import os
import signal
import sys

from kinetic_runner.child import call, stop_requests

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
    stopping = stop_requests.Stopping.install()

    def trace(frame, event, _):
        global came, passed
        # What a line of the function's itself is interrupted by has come before its end.
        if (
            over
            and event == "line"
            and frame.f_code.co_filename in (call.__file__, stop_requests.__file__)
        ):
            passed += 1
            if passed == line:
                came = True
                os.kill(os.getpid(), signal.SIGTERM)
        return trace

    sys.settrace(trace)
    end = call.invoke(function, (), {}, stopping)
    sys.settrace(None)
    assert (stopping.came_late, stopping.stop_requested) == (True, came), line
    print(type(end).__name__, str(end[0]))
