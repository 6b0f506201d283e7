import sys

from helper import double

import kinetic


@kinetic.run(accelerator="cpu", debug=True)
def work(x):
    y = double(x)
    return y


if __name__ == "__main__":
    if sys.argv[1] == "call":
        print("value", work(21))
    elif sys.argv[1] == "submit":
        print(work.run_async(21).job_id)
    else:
        from kinetic.debug import cleanup_port_forward

        job = kinetic.attach(sys.argv[2])
        session = job.debug_attach()
        assert session.poll() is None
        cleanup_port_forward(session)
        assert session.poll() is not None
        print("value", job.result())
        print("kept", job.status().value)
        try:
            job.debug_attach()
        except kinetic.JobError as error:
            print("too late:", error.message)
