"""PyFlink's shell: `from pyflink.shell import *` imports its names, `s_env` and `st_env`."""

from millstream.common import *  # noqa: F403
from millstream.datastream import *  # noqa: F403
from millstream.datastream import StreamExecutionEnvironment
from millstream.metrics import *  # noqa: F403
from millstream.table import *  # type: ignore[assignment]  # noqa: F403
from millstream.table import StreamTableEnvironment
from millstream.table.catalog import *  # noqa: F403
from millstream.table.window import *  # noqa: F403

s_env = StreamExecutionEnvironment.get_execution_environment()
st_env = StreamTableEnvironment.create(s_env)
