import json
import sys

import kinetic

for job_id in sys.argv[1:]:
    job = kinetic.attach(job_id)
    value = job.result(cleanup=False)
    outcome = job.outcome()
    ends = {n: [host.reason for host in hosts] for n, hosts in outcome.attempts.items()}
    print(json.dumps([value if isinstance(value, int) else value[0], ends, outcome.message]))
    job.cleanup()
