"""Settings of high availability, as in Flink."""

from __future__ import annotations

from enum import Enum

from millstream.checkpoint.storage import open_storage, storage_options
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.setting import ChoiceSetting, DurationSetting, TextSetting, at_least, in_words
from millstream.leader.cas_cells import Cells, FileCells
from millstream.leader.election import Timing


class HaType(Enum):
    """Where the leader and the checkpoints of jobs are recorded."""

    NONE = "none"
    FILESYSTEM = "filesystem"
    ZOOKEEPER = "zookeeper"
    KUBERNETES = "kubernetes"


TYPE = ChoiceSetting("high-availability.type", HaType.NONE, ("high-availability", "recovery.mode"))
STORAGE_DIR = TextSetting(
    "high-availability.storageDir", None, ("high-availability.zookeeper.storageDir", "recovery.zookeeper.storageDir")
)
CLUSTER_ID = TextSetting(
    "high-availability.cluster-id",
    "default",
    ("high-availability.zookeeper.path.namespace", "recovery.zookeeper.path.namespace"),
)
_LEASE = "high-availability.kubernetes.leader-election"
_positive = at_least(1, in_words)
# Flink has these only for Kubernetes; here they apply to every type.
DURATION = DurationSetting(
    "millstream.high-availability.lease-duration", 15_000, (f"{_LEASE}.lease-duration",), _positive
)
RENEW_DEADLINE = DurationSetting(
    "millstream.high-availability.renew-deadline", 10_000, (f"{_LEASE}.renew-deadline",), _positive
)
RETRY_PERIOD = DurationSetting(
    "millstream.high-availability.retry-period", 2_000, (f"{_LEASE}.retry-period",), _positive
)
QUORUM = TextSetting("high-availability.zookeeper.quorum", None, ("recovery.zookeeper.quorum",))
ZOOKEEPER_ROOT = TextSetting("high-availability.zookeeper.path.root", "/millstream", ("recovery.zookeeper.path.root",))
SESSION_TIMEOUT = DurationSetting(
    "high-availability.zookeeper.client.session-timeout",
    60_000,
    ("recovery.zookeeper.client.session-timeout",),
    _positive,
)
NAMESPACE = TextSetting("kubernetes.namespace", None)
KUBERNETES_SERVER = TextSetting("millstream.high-availability.kubernetes.server", None)
KUBERNETES_TOKEN = TextSetting("millstream.high-availability.kubernetes.token-file", None)
KUBERNETES_CA = TextSetting("millstream.high-availability.kubernetes.ca-file", None)


@fast_dataclass
class HaOptions:
    """The high-availability settings.

    Attributes:
        storage_dir: a directory that all machines share: for programs, and with FILESYSTEM for everything else.
        cluster_id: distinguishes the clusters that share it.
    """

    config: Configuration
    type: HaType
    storage_dir: str
    cluster_id: str
    timing: Timing

    @staticmethod
    def read(config: Configuration) -> HaOptions | None:
        """Return the settings; None without high availability."""
        kind = TYPE.read(config)
        if kind is HaType.NONE:
            return None
        directory = STORAGE_DIR.read(config)
        if directory is None:
            raise InvalidProgramError(
                f"{TYPE.key} is {kind.name}, and no shared storage of the job managers is configured: set "
                f"{STORAGE_DIR.key} to a directory or URL that all of them can access."
            )
        cluster_id = CLUSTER_ID.read(config)
        assert cluster_id is not None
        if not all(c.isalnum() or c in "-_." for c in cluster_id.strip("/")) or not cluster_id.strip("/."):
            raise InvalidProgramError(
                f"{CLUSTER_ID.key} is {cluster_id!r}: it may have letters, digits, -, _ and dots."
            )
        timing = Timing(*(s.read(config) / 1000 for s in (DURATION, RENEW_DEADLINE, RETRY_PERIOD)))
        timing.check()
        return HaOptions(config, kind, directory.rstrip("/"), cluster_id.strip("/"), timing)

    @property
    def home(self) -> str:
        """The directory of this cluster."""
        return f"{self.storage_dir}/{self.cluster_id}"

    def open(self) -> Cells:
        """Return the cells that the job managers share."""
        match self.type:
            case HaType.ZOOKEEPER:
                from millstream.leader.zookeeper import ZooKeeperCells

                return ZooKeeperCells(self._quorum(), f"{self._root()}/{self.cluster_id}", self._session_seconds())
            case HaType.KUBERNETES:
                from millstream.leader.kubernetes import Access, KubernetesCells

                server, namespace, token, ca = (s.read(self.config) for s in _KUBERNETES)
                access = Access.find(server, namespace, token, ca)
                return KubernetesCells(access, self.cluster_id, self.timing.retry_period)
            case _:
                return FileCells(open_storage(self.home, storage_options(self.config)))

    def _quorum(self) -> str:
        quorum = QUORUM.read(self.config)
        if quorum is None:
            raise InvalidProgramError(f"{TYPE.key} is ZOOKEEPER: set {QUORUM.key} to its servers, host:port,....")
        return quorum

    def _root(self) -> str:
        return "/" + (ZOOKEEPER_ROOT.read(self.config) or "").strip("/")

    def _session_seconds(self) -> float:
        """Return the session timeout: by default the duration of the lease."""
        if SESSION_TIMEOUT.is_set(self.config):
            return SESSION_TIMEOUT.read(self.config) / 1000
        return self.timing.duration


_KUBERNETES = (KUBERNETES_SERVER, NAMESPACE, KUBERNETES_TOKEN, KUBERNETES_CA)
