"""An instance that has just been started, with the server that answers its readiness requests."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from rigwright.engines.instance_request import ONE_TOKEN, InstanceRequest
from rigwright.render import render
from tests.unit.file_server import LoopbackFileServer, ServedRequest
from tests.unit.rendered_scripts import write_stand_in

KEY = "sk-0123456789abcdef"
GROUP = "daemon"  # stands in for the instance's own
UNIT = "rigwright-chat.service"
INVOCATION = "0123456789abcdef0123456789abcdef"
TEXT = "[Unit]\nDescription=chat\n"
ENVIRONMENT = "CUDA_VISIBLE_DEVICES=\nRW_DIGEST=0123456789abcdef\n"


@dataclass
class StartingInstance:
    """An instance that has just been started."""

    folder: Path
    server: LoopbackFileServer
    socket: Path
    requests: tuple[InstanceRequest, ...] = (ONE_TOKEN,)
    """The one that it has to answer, then those that warm it up."""
    again: InstanceRequest | None = None
    """The request that later starts on demand have to answer."""
    weights: tuple[str, ...] = ("weights 1.gguf",)
    group: str = "/rigwright.slice/rigwright-chat.service"
    """The control group that systemd says its unit has."""
    tasks: str = "TasksCurrent=96\nTasksMax=4096"
    """The unit's processes and the limit of them, as systemd has them."""
    busy: bool = False
    """Whether systemd does not say it when it is first asked."""
    recorder: str = "active"
    """The state of the recorder of its memory, as systemd has it."""
    processes: dict[int, tuple[str, list[str]]] = field(default_factory=dict)
    """Those that stand in for all of the host: lines of their control groups, and what they have open."""

    @property
    def generation(self) -> Path:
        """The generation's folder."""
        return self.folder / "config" / "generations" / "1"

    @property
    def record(self) -> Path:
        """The record of its start."""
        return self.folder / "run" / UNIT

    @property
    def proof(self) -> Path:
        """The note that it has answered."""
        return self.folder / "run" / f"{UNIT}.answered"

    @property
    def completions_asked(self) -> list[ServedRequest]:
        """The requests that reached its server, without looks whether it loads."""
        return [one for one in self.server.asked if one.path != "health"]

    def declare_memory(self) -> None:
        """Have its starts recorded."""
        (self.generation / "memory").mkdir(parents=True)
        (self.generation / "memory/chat.json").write_text("{}")

    def write(self) -> None:
        """Put its generation there."""
        folders = {"started_from": self.folder / "run", "starts": self.folder / "starts", "warm": self.folder / "warm"}
        folders |= {"memory": self.folder / "memory", "sockets": self.socket.parents[1]}
        script = render("serving/ready.j2", units=self.folder, links="", recorder="memory/recorder", **folders)
        first, *rest = (request.render_curl_config(str(self.socket)) for request in self.requests)
        for name in self.weights:
            (self.folder / name).write_text(name)
        files = {
            "ready": script.replace("/proc/", f"{self.folder}/proc/") if self.processes else script,
            "env/chat": ENVIRONMENT,
            "requests/chat": first,
            **({"requests/chat.again": self.again.render_curl_config(str(self.socket))} if self.again else {}),
            "weights/chat": "".join(f"{self.folder / name}\n" for name in self.weights),
            **{f"warm-up/chat.{number}": text for number, text in enumerate(rest, start=1)},
            # another instance's
            "warm-up/chatty.1": first.replace(self.server.url, f"{self.server.url}/chatty"),
        }
        for path, text in files.items():
            (self.generation / path).parent.mkdir(parents=True, exist_ok=True)
            (self.generation / path).write_text(text)
        for pid, (groups, opened) in self.processes.items():
            descriptors = self.folder / "proc" / str(pid) / "fd"
            descriptors.mkdir(parents=True)
            (descriptors.parent / "cgroup").write_text(groups)
            for number, path in enumerate(opened):
                (descriptors / str(number)).symlink_to(path)
        (self.folder / "config" / "current").symlink_to("generations/1")
        (self.folder / UNIT).write_text(TEXT)

    def ready(
        self, main_pid: int, key: str = KEY, unread: bool = False, cards: int = 0, cache: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run the script as its unit does."""
        self.write()
        (self.folder / "key").write_text(key + "\n")
        # a stand-in for systemd, which knows no such unit here
        group = f"echo '{self.group}'"
        if self.busy:
            heard = self.folder / "heard"
            group = f"if [ -e {heard} ]; then {group}; else touch {heard}; exit 1; fi"
        tasks = f"echo '{self.tasks}'"
        other = f"echo {'yes' if unread else 'no'}"
        recorder = f"echo $* >> {self.folder}/asked; echo {self.recorder}; exit 3"
        answer = (
            f"case $* in is-active*) {recorder} ;; *ControlGroup*) {group} ;; *TasksMax*) {tasks} ;; *) {other} ;; esac"
        )
        write_stand_in(self.folder / "bin", "systemctl", answer)
        script = str(self.folder / "config" / "current" / "ready")
        return subprocess.run(
            ["sh", script, UNIT, GROUP, str(self.folder / "key"), str(cards), *filter(None, [cache])],
            env={
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "MAINPID": str(main_pid),
                "INVOCATION_ID": INVOCATION,
            },
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
