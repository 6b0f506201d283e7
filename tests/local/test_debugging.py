"""A job that waits for a debugger: found, attached to by debugpy's own client protocol, and let go."""

from __future__ import annotations

import pytest

SCRIPT = """
    import kinetic, json, re, socket, sys
    from kinetic.debug import cleanup_port_forward

    @kinetic.run(accelerator="cpu", debug=True)
    def work():
        return "done"

    def message(sequence, command, **arguments):
        body = json.dumps({"seq": sequence, "type": "request", "command": command,
                           "arguments": arguments}).encode()
        return b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body

    if __name__ == "__main__":
        job = work.run_async()
        session = job.debug_attach()
        port = int(sys.argv[1]) if len(sys.argv) > 1 else None
        for line in job.log_lines():
            if found := re.search(r"127\\.0\\.0\\.1:(\\d+)", line.text):
                port = int(found[1])
        with socket.create_connection(("127.0.0.1", port)) as debugger:
            debugger.sendall(message(1, "initialize", adapterID="test"))
            debugger.sendall(message(2, "attach", justMyCode=True))
            seen = b""
            while b'"initialized"' not in seen:
                seen += debugger.recv(4096)
            debugger.sendall(message(3, "configurationDone"))
            print(job.result(timeout=60))
        assert session.poll() is None
        cleanup_port_forward(session)
        assert session.poll() is not None
        print("kept:", job.status().value)
        job.cleanup()
"""


def test_a_debug_job_waits_for_a_debugger_and_is_kept_afterwards(project) -> None:
    pytest.importorskip("debugpy")

    printed = project.script(SCRIPT)

    assert '"connect": {' in printed
    assert "done" in printed
    assert "kept: SUCCEEDED" in printed


def test_a_job_without_debug_and_one_that_is_over_are_refused_in_words(project) -> None:
    printed = project.script("""
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            return 1

        if __name__ == "__main__":
            job = work.run_async()
            try:
                job.debug_attach()
            except kinetic.JobError as error:
                print(error.message, error.hint, error.job_id == job.job_id)
            job.result()
    """)

    assert "was not submitted with debug=True" in printed
    assert "debug=True" in printed
    assert "True" in printed
