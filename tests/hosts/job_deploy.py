"""One job that ends once /root/go exists."""

from roles.operations.jobs import ensure_job

ensure_job(
    name="Wait for go",
    unit="rw-job-test",
    script="echo '==> waiting for go'; while ! [ -e /root/go ]; do sleep 0.1; done; touch /root/gone\n",
    test="[ -e /root/gone ]",
    folder="/var/lib/rigwright/jobs",
)
