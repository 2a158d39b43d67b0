"""Exactly-once files: writes each record to a file exactly once, whatever fails.

Shows:    FileSink with checkpoints. A file is hidden while it is written and gets its name when its checkpoint is
          complete, so readers never see a record that could be written again.
Change:   the source; Encoder.simple_string_encoder() to your own encoder (any object with encode(value, stream));
          the bucket assigner, for one directory per hour; checkpoint_dir to storage that all machines share.
Run:      python examples/exactly_once_files.py out          (a directory; without one, a temporary one)

Kill it while it runs (kill -9), then restore its last checkpoint:

    millstream run --from-checkpoint latest examples/exactly_once_files.py out

Expected output, also after a kill:

    4000 records in the files, 4000 different ones: each exactly once
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from millstream.common import Configuration, Encoder
from millstream.datastream import ExternalizedCheckpointRetention, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig

PER_SECOND = 1_000


def check(directory: Path, records: int) -> str:
    """Read the visible files: names of incomplete files begin with a dot."""
    files = [file for file in directory.rglob("part-*") if file.is_file()]
    lines = [line for file in files for line in file.read_text().splitlines()]
    verdict = "each exactly once" if len(lines) == len(set(lines)) == records else "SOMETHING IS WRONG"
    return f"{len(lines)} records in the files, {len(set(lines))} different ones: {verdict}"


def main(directory: Path, records: int) -> None:
    config = Configuration()
    # Next to the output, not in it. The default is a temporary directory, which does not outlive this process.
    config.set_string("execution.checkpointing.dir", str(directory.absolute()) + "-checkpoints")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    # Output becomes visible with each checkpoint, so the interval is a reader's maximum wait.
    env.enable_checkpointing(500)
    # Retain the checkpoint of a cancelled or failed job, so that it can be restored, too.
    env.get_checkpoint_config().set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )

    # The source resumes at the index in the checkpoint.
    stream = env.from_source(DataGeneratorSource(lambda i: f"record {i}", records, PER_SECOND), None, "records")
    sink = (
        FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_output_file_config(OutputFileConfig.builder().with_part_suffix(".txt").build())
        .build()
    )
    # Permanent ids, by which a changed program finds its state.
    stream.uid("records").sink_to(sink).uid("files")
    # The name matters as well: --from-checkpoint latest restores a job of this name.
    env.execute("exactly-once files")
    print(check(directory, records))


if __name__ == "__main__":
    out = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="millstream-files-")
    main(Path(out), int(sys.argv[2]) if len(sys.argv) > 2 else 4_000)
