"""Causes between processes, cards and hosts: NCCL, Gloo, torch's rendezvous, ports, names, certificates and the hub.

Sources: the messages of NCCL (src/misc, bootstrap.cc), torch.distributed (TCPStore, ProcessGroupNCCL, Gloo), glibc's
resolver, OpenSSL, Ray, requests and huggingface_hub.
"""

from __future__ import annotations

from rigwright.engines.log_causes import UNKNOWN_CAUSE, Cause

_MODEL_NAME = r"(?:repo|model|files?|url)\w{0,80}:? (?:for )?[`'\"]?([\w.-]{1,80}/[\w./-]{2,80})"

SHARED_MEMORY = Cause(
    "nccl-shared-memory",
    r"Error while creating shared memory segment|NCCL WARN "
    r".{0,200}(?:shm_open|/dev/shm)|(?:/dev/shm|/psm_|sem_|[Ss]hared "
    r"memory).{0,160}(?:No space left|Errno 28)|No space left on device.{0,100}(?:/dev/shm|psm_|shm)|unable to "
    r"(?:allocate "
    r"shared memory|mmap \d{1,20} bytes from file <.{0,40}torch)|insufficient shared memory "
    r"\(shm\)"
    r"|/dev/shm.{0,60}(?:too small|is full|insufficient)",
    "the memory that processes share (/dev/shm) is full: enlarge it (`--shm-size=8g` or `--ipc=host` of a container, "
    "an "
    "emptyDir of medium Memory in Kubernetes)",
)

TRANSPORT = (
    Cause(
        "address-family",
        r"errno: 97 - Address family not supported",
        "the host has no IPv6, and the connection is tried by IPv4",
        harmless=True,
    ),
    Cause(
        "nccl-same-card",
        r"Duplicate GPU detected",
        "two ranks use the same card: give each process its own, by CUDA_VISIBLE_DEVICES and the number of cards",
    ),
    Cause(
        "nccl-interface",
        r"no socket interface found|NCCL WARN .{0,200}(?:No interface|interface .{0,60}not found)"
        r"|NCCL_SOCKET_IFNAME(?!=| set by)|makeDeviceForHostname|GLOO_SOCKET_IFNAME(?!=| set by)",
        "no network interface for the processes' traffic: set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the one "
        "that reaches the other hosts",
    ),
    Cause(
        "gloo-connect",
        r"[Gg]loo.{0,200}(?:Unable to find address|connectFullMesh failed|Connection refused|timed out|unable to "
        r"connect|Connection closed)",
        "the processes cannot reach each other by the address that Gloo chose: set GLOO_SOCKET_IFNAME, open the "
        "firewall, and check that the host's own name resolves",
    ),
    Cause(
        "nccl-hang",
        r"Watchdog caught collective operation timeout|Some NCCL operations have failed or timed out"
        r"|NCCL WARN .{0,200}(?:timed out|timeout)|Timeout at NCCL work",
        "a collective operation between cards did not end: one rank failed or waits; look for the first error of "
        "another rank "
        "and an Xid, then try NCCL_P2P_DISABLE=1",
    ),
    Cause(
        "nccl-remote",
        r"ncclRemoteError|NCCL WARN .{0,200}(?:Connection (?:refused|reset|closed)|socketProgress|Call to connect)",
        "another rank ended or is unreachable: its own first error is the cause; between hosts check the firewall",
    ),
    Cause(
        "rendezvous",
        r"Dist(?:Network|Store)Error(?!.{0,300}(?:EADDRINUSE|in use|failed to listen))|client socket has (?:timed "
        r"out|failed to connect)|TCPStore.{0,200}"
        r"(?:timed? ?out|failed|Broken pipe|refused)|[Rr]endezvous.{0,100}(?:timed? ?out|failed)",
        "the processes do not find each other at start: check master address and port, that all ranks run, and the "
        "firewall",
        names=r"(?:connect to |host:? )[(\[]?([\w.-]{1,80}[\],: ]{1,80} ?\d{2,5})",
    ),
    Cause(
        "ray",
        r"Ray workers have not started|Current node has no GPU available|Placement group timed out|number of required "
        r"GPUs exceeds|does not support ray\b"
        r"|The current node has not been updated"
        r"|No available node types can fulfill|Ray is not initialized|not included in a placement group"
        r"|Cannot provide a placement group",
        "Ray does not start or has no free card: check `ray status`, that each node has its cards free, and the "
        "worker's own log",
    ),
    Cause(
        "ray-worker-lost",
        r"ray\.exceptions\.\w{1,80}|[Tt]he actor died unexpectedly|raylet.{0,100}(?:died|failed)",
        "a worker of Ray ended or does not answer: its own error is above, or in its log",
        general=True,
    ),
    Cause(
        "certificate",
        r"CERTIFICATE_VERIFY_FAILED|SSL(?:Error|CertVerificationError)|certificate (?:verify failed|has expired"
        r"|signed by unknown authority)|SSL server verification failed|unable to get local issuer certificate|HTTPS "
        r"requested but|without SSL support|built without SSL|HTTPS is not supported",
        "a TLS certificate is not trusted: install the certificate authority of the proxy or mirror, check the clock",
    ),
    Cause(
        "name-resolution",
        r"[Nn]ame or service not known|Temporary failure in name resolution|Could not resolve host"
        r"|NameResolutionError|getaddrinfo failed|nodename nor servname",
        "a host name does not resolve: check DNS and the proxy of the service, or fetch the files beforehand",
        names=r"host(?:=|name|:)? ?'?([\w.-]{3,80})",
    ),
    Cause(
        "hub-rate",
        r"429 Client Error|Too Many Requests|rate limit(?:ed)? (?:exceeded|reached)|toomanyrequests",
        "the server limits the number of requests: log in with a token, or wait",
    ),
    Cause(
        "hub-missing-file",
        r"(?<!Local)EntryNotFoundError|404 Client Error|(?:status:?|HTTP) 404\b|RevisionNotFoundError|no GGUF files "
        r"found in repository"
        r"|get_hf_plan: file .{0,200}not found in repository",
        "the repository has no such file or revision: check the model's name, file and quantisation, and that no "
        "preset has the name of a repository",
        names=r"file '([^']{1,80})'|repository ([\w.-]{1,80}/[\w.-]{1,80})|url: "
        r"\S{0,80}?/([\w.-]{1,80}/[\w.-]{1,80})/resolve",
    ),
    Cause(
        "hub-download",
        r"ConsistencyError|HfHubHTTPError|\b50[0234] Server Error|Consistency check "
        r"failed|IncompleteRead|ReadTimeoutError|ReadTimeout\b|ChunkedEncodingError"
        r"|Max retries exceeded with url|hf_transfer.{0,60}(?:[Ee]rror|[Ff]ail)|CAS service "
        r"error|common_download_file\w{0,80}: .{0,100}failed"
        r"|[Dd]ownload (?:'[^']{1,80}' )?failed|[Ff]ailed to (?:download|get) Docker|HTTPLIB failed|http client error"
        r"|GET failed \(|failed to download (?:model|file)|Data processing error: CAS",
        "a download of the model was interrupted: check network, proxy and disk space, delete the partial file, try "
        "again",
        names=_MODEL_NAME,
    ),
    Cause(
        "nccl-warning",
        r"NCCL WARN ",
        f"{UNKNOWN_CAUSE}NCCL reports a fault of the cards, their links or the network: its line names the step",
        broad=True,
    ),
)
