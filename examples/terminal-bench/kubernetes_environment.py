"""An environment for harbor on any Kubernetes: each is a pod of the task's image, reached by kubectl.

    PYTHONPATH=examples/terminal-bench harbor run --path TASKS --agent oracle \\
        --env kubernetes_environment:KubernetesEnvironment --ek namespace=terminal-bench

It starts the same pods as serve.py does for rollouts of combee. A task that has only a Dockerfile needs its
image pushed: with --ek image_prefix=PREFIX the image is PREFIX and the task's name.
"""

import asyncio
import shlex
from pathlib import Path
from typing import Any, override

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.trial.config import ResourceMode
from pods import PodError, Pods, new_name, text


class KubernetesEnvironment(BaseEnvironment):
    """A pod of the task's image, in ``namespace``. ``context``: of kubectl; ``restricted``: as user 10001, as
    the Pod Security Standard of that name asks."""

    def __init__(
        self,
        *args: Any,
        namespace: str = "default",
        context: str = "",
        image_prefix: str = "",
        restricted: bool = False,
        **kwargs: Any,
    ) -> None:
        self._image_prefix = image_prefix
        super().__init__(*args, **kwargs)
        self._pod = new_name(self.environment_name)
        flags = ("--context", context) if context else ()
        self._pods = Pods(namespace, restricted, flags, resources=self._resources())

    @staticmethod
    @override
    def type() -> str:
        return "kubernetes"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(
            cpu_limit=True, cpu_request=True, memory_limit=True, memory_request=True, fractional_cpus=True
        )

    @property
    def _image(self) -> str:
        prefixed = f"{self._image_prefix}{self.environment_name}" if self._image_prefix else ""
        return self.task_env_config.docker_image or prefixed

    @override
    def _validate_definition(self) -> None:
        if not self._image:
            raise ValueError(
                f"{self.environment_dir}: the task names no docker_image. Build its environment/, push it as "
                f"PREFIX{self.environment_name}, and give --ek image_prefix=PREFIX"
            )
        if (self.environment_dir / "docker-compose.yaml").exists():
            raise ValueError(f"{self.environment_dir}: an environment of several containers is no single pod")

    def _resources(self) -> dict[str, dict[str, str]]:
        """What the task asks for, as a limit where nothing else is said."""
        auto = ResourceMode.LIMIT
        kinds = {"limits": self._resource_limit_value, "requests": self._resource_request_value}
        made: dict[str, dict[str, str]] = {}
        for kind, value in kinds.items():
            cpus, memory = value("cpu", auto_mode=auto), value("memory", auto_mode=auto)
            amounts = {"cpu": cpus and str(cpus), "memory": memory and f"{memory}Mi"}
            made[kind] = {name: amount for name, amount in amounts.items() if amount}
        return made

    @override
    async def start(self, force_build: bool) -> None:
        if force_build:
            raise ValueError("images are not built here: push them, and leave --force-build out")
        await asyncio.to_thread(self._pods.start, self._pod, self._image, self._startup_env())
        made = await self.ensure_dirs(self._mount_targets())
        if made is not None and made.return_code:
            raise PodError(f"the folders of logs were not made: {made.stderr}")
        await self._upload_environment_dir_after_start()

    @override
    async def stop(self, delete: bool) -> None:
        if delete:
            await asyncio.to_thread(self._pods.stop, self._pod)

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        lines = [
            f"export {name}={shlex.quote(value)}" for name, value in (self._merge_env(env) or {}).items()
        ]
        if folder := cwd or self.task_env_config.workdir:
            lines.append(f"cd {shlex.quote(folder)} || exit")
        ran = await asyncio.to_thread(
            self._pods.run,
            self._pod,
            "\n".join([*lines, command]),
            seconds=timeout_sec,
            user=self._resolve_user(user),
        )
        return ExecResult(stdout=text(ran.stdout), stderr=text(ran.stderr), return_code=ran.code)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        source = Path(source_path)
        executable = bool(source.stat().st_mode & 0o100)
        await asyncio.to_thread(
            self._pods.put, self._pod, target_path, source.read_bytes(), executable=executable
        )

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        for path in sorted(Path(source_dir).rglob("*")):
            if path.is_file():
                await self.upload_file(path, f"{target_dir}/{path.relative_to(source_dir).as_posix()}")

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        content = await asyncio.to_thread(self._pods.get, self._pod, source_path)
        if content is None:
            raise FileNotFoundError(f"there is no file {source_path} in the pod {self._pod}")
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        Path(target_path).write_bytes(content)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        root = Path(target_dir).resolve()
        for name in await asyncio.to_thread(self._pods.files, self._pod, source_dir):
            # Names come from the pod, where the agent may have made them.
            if not (root / name).resolve().is_relative_to(root):
                raise PodError(f"the file {name!r} of {source_dir} would be outside {target_dir}")
            await self.download_file(f"{source_dir}/{name}", root / name)
