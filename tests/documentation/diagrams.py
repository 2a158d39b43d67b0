"""Generates the diagrams of the documentation, docs/images/*.svg (`make diagrams`)."""

from __future__ import annotations

from collections.abc import Callable

from tests.documentation.drawing import Drawing
from tests.support.paths import DOCS

IMAGES = DOCS / "images"
_LEFT, _RIGHT = 111, 309


def record_path() -> Drawing:
    """Draw the way of a record from the driver's split ranges to committed output."""
    d = Drawing(
        "The path of a record",
        "The job master assigns split ranges to slots. In each slot, level 0 reads them in one generated loop "
        "of source, watermarks and map, and sends blocks of records to the slot that owns the key. Level 1 of "
        "that slot updates the key's state and stages output. The slots report to the job master, which "
        "commits the output.",
        600,
    )
    d.box(12, 12, 396, 48, "#job master, a thread of your program\nplans the epoch", "accent")
    for x, slot, groups, rows in ((_LEFT, 0, "0 to 63", "100 to 4,999"), (_RIGHT, 1, "64 to 127", "0 to 7,999")):
        d.arrow((x - 80, 60), (x - 80, 112))
        d.label(x - 70, 82, f"~partition {slot}, offsets")
        d.label(x - 70, 97, f"~{rows}")
        d.lane(x - 99, 112, 194, 384, f"slot {slot}")
        d.box(x - 87, 142, 174, 72, "#level 0: one loop\nsource → watermarks\n→ map")
        d.box(x - 87, 326, 174, 56, "#level 1: one loop\nreduce → sink writer")
        d.box(x - 87, 390, 174, 44, f"#keyed state\nkey groups {groups}", "ok")
        d.box(x - 87, 442, 174, 44, "#staged output\na hidden part file", "low")
        d.arrow((x, 496), (x, 540))
    for start, end in ((_LEFT, _LEFT), (_LEFT, _RIGHT), (_RIGHT, _LEFT), (_RIGHT, _RIGHT)):
        d.arrow((start, 214), (end, 326), style="accent")
    d.label(210, 242, "#exchange", "over", "middle")
    d.label(210, 292, "~blocks of records,", "over", "middle")
    d.label(210, 308, "~by key group", "over", "middle")
    d.label(210, 522, "~reports: files, positions", "over", "middle")
    d.box(12, 540, 396, 48, "#job master\nacknowledges the epoch, commits the output", "accent")
    return d


def checkpoint() -> Drawing:
    """Draw a checkpoint: the slots stage, the manifest is written, the output is committed."""
    d = Drawing(
        "A checkpoint and the commit of its output",
        "In phase one, epoch 7 belongs to checkpoint 3: slots process it, write state files and stage output, "
        "then report to the job master, which writes the manifest while epoch 8 runs. In phase two, with the "
        "manifest on storage, the job master commits the staged output and deletes the former checkpoint. A "
        "failure in phase one rolls back to checkpoint 2; a failure in phase two commits again.",
        560,
    )
    driver, slots, storage = 66, 204, 352
    d.box(6, 52, 408, 288, style="lane")
    d.box(6, 352, 408, 112, style="accent")
    for x, w, text in ((driver, 108, "#job master"), (slots, 108, "#slots"), (storage, 108, "#storage")):
        d.box(x - w / 2, 10, w, 30, text)
        d.line((x, 40), (x, 340 if text == "#slots" else 464), style="dashed")
    d.label(78, 72, "#phase 1")
    d.arrow((driver, 96), (slots, 96))
    d.label(135, 90, "~start epoch 7", "over", "middle")
    d.box(slots - 58, 106, 116, 44, "process epoch 7\nstage output", "low")
    d.arrow((slots, 182), (storage, 182))
    d.label(278, 176, "~state: deltas", "over", "middle")
    d.arrow((slots, 224), (driver, 224))
    d.label(135, 202, "~files, positions,", "over", "middle")
    d.label(135, 217, "~staged output", "over", "middle")
    d.arrow((driver, 262), (storage, 262))
    d.label(278, 256, "~chk-3/_metadata", "over", "middle")
    d.arrow((driver, 290), (slots, 290))
    d.label(135, 284, "~start epoch 8", "over", "middle")
    d.arrow((storage, 326), (driver, 326), style="accent")
    d.label(278, 320, "~manifest is safe", "over", "middle")
    d.label(78, 374, "#phase 2")
    d.arrow((driver, 412), (storage, 412), style="accent")
    d.label(209, 405, "~make the staged output visible", anchor="middle")
    d.arrow((driver, 446), (storage, 446))
    d.label(209, 439, "~then delete checkpoint 2", anchor="middle")
    d.label(14, 490, "#A failure …")
    d.label(14, 514, "in phase 1: roll back to checkpoint 2, abort staged output", "high")
    d.label(14, 538, "in phase 2: roll back to checkpoint 3, commit again", "ok")
    return d


def exchange() -> Drawing:
    """Draw the connections between two resident slots, with their frames."""
    d = Drawing(
        "The exchange between resident slots",
        "Each of two slots runs level 0, then level 1. The generated loop appends each record to the block of "
        "the slot that owns its key. Blocks go over one connection for each pair of slots, followed by an END "
        "frame for the epoch. Slot 0 has both ENDs and processes its blocks; slot 1 waits for the END of slot "
        "0.",
        452,
    )
    for x, slot in ((_LEFT, 0), (_RIGHT, 1)):
        d.box(x - 99, 12, 192, 64, f"#slot {slot}, level 0\nloop of the first chain", "accent")
    d.box(12, 296, 192, 82, "#slot 0, level 1\nEND, END: processes\nthe blocks it received", "ok")
    d.box(210, 296, 198, 82, "#slot 1, level 1\nEND, no END yet:\nwaits for slot 0", "idle")
    for start, end in ((_LEFT - 60, _LEFT - 60), (_LEFT, _RIGHT), (_RIGHT, _LEFT), (_RIGHT + 60, _RIGHT + 60)):
        d.arrow((start, 76), (end, 296))
    frames = {(51, 51): "BBE", (369, 369): "BE", (_RIGHT, _LEFT): "BE", (_LEFT, _RIGHT): "BB"}
    for (start, end), kinds in frames.items():
        for i, kind in enumerate(kinds):
            share = (0.86, 0.70, 0.54)[i] if start == end else (0.84, 0.71)[i]
            place, y = start + (end - start) * share, 76 + 220 * share
            if kind == "B":
                d.box(place - 10, y - 9, 20, 18, style="accent")
            else:
                d.box(place - 19, y - 9, 38, 18, "~END", "low")
    d.box(20, 396, 20, 18, style="accent")
    d.label(48, 410, "block: records for one subtask, as one pickle")
    d.box(11, 424, 38, 18, "~END", "low")
    d.label(58, 438, "no more blocks of this epoch: the barrier")
    return d


def watermarks() -> Drawing:
    """Draw how the event time of an operator follows its slowest input that is not idle."""
    d = Drawing(
        "The progress of a watermark",
        "Partition A has records with the times 8, 12 and 14 and the watermark 14. Partition B has 4, 6 and 9 "
        "and the watermark 9. Partition C is idle and does not count. The event time of the operator is the "
        "minimum, 9. The window from 0 to 5 has fired; the one from 5 to 10 is open. A record with time 3 is "
        "late.",
        392,
    )

    def x(second: float) -> float:
        return 104 + second * 19

    for y, name, times, mark in ((28, "A", (8, 12, 14), 14), (84, "B", (4, 6, 9), 9)):
        d.box(12, y, 396, 46, style="lane")
        d.label(22, y + 28, f"#partition {name}")
        for time in times:
            d.dot(x(time), y + 23, str(time))
        d.line((x(mark) + 15, y + 4), (x(mark) + 15, y + 42), style="accent thick")
    d.label(404, 20, "~watermark 14", anchor="end")
    d.label(x(9) + 21, 112, "~watermark 9")
    d.box(12, 140, 396, 46, style="idle dashed")
    d.label(22, 168, "#partition C")
    d.label(x(7.5), 168, "idle: does not hold the others back", anchor="middle")
    d.arrow((210, 190), (210, 218))
    d.box(12, 218, 396, 34, "#event time of the operator = min(A, B) = 9", "accent")
    d.line((x(9), 252), (x(9), 336), style="accent thick")
    for start, text, style in ((0, "0 to 5: fired", "ok"), (5, "5 to 10: open", "low"), (10, "10 to 15: open", "low")):
        d.box(x(start) + 1, 264, 93, 30, f"~{text}", style)
    d.label(22, 284, "#windows")
    d.line((x(0), 310), (x(15.5), 310))
    for second in (0, 5, 10, 15):
        d.line((x(second), 306), (x(second), 314))
        d.label(x(second), 330, f"~{second} s", anchor="middle")
    d.dot(x(3), 360, "3", "high")
    d.arrow((x(3), 348), (x(3), 298), style="high")
    d.label(x(3) + 20, 357, "late: its window has fired.")
    d.label(x(3) + 20, 375, "Dropped, or sent to a side output")
    return d


def join_changelog() -> Drawing:
    """Draw the changes that a join emits for the changes of its inputs."""
    d = Drawing(
        "The changelog of a join",
        "An order arrives: the join emits nothing. A payment by card arrives: it emits +I plums, card. The "
        "payment changes to cash: it emits -U plums, card and +U plums, cash. The payment is deleted: it "
        "emits -D plums, cash.",
        342,
    )
    for x, w, text in ((8, 96, "#orders"), (112, 118, "#payments"), (252, 160, "#the join emits")):
        d.box(x, 10, w, 30, text, "lane")
    rows = [
        (56, "+I 1, plums", "", ["nothing: no payment yet"]),
        (118, "", "+I 1, card", ["+I plums, card"]),
        (180, "", "-U 1, card\n+U 1, cash", ["-U plums, card", "+U plums, cash"]),
        (260, "", "-D 1, cash", ["-D plums, cash"]),
    ]
    for y, order, payment, output in rows:
        h = 54 if "\n" in payment else 36
        if order:
            d.box(8, y, 96, h, f"`{order}", "accent")
        if payment:
            d.box(112, y, 118, h, "\n".join(f"`{line}" for line in payment.split("\n")), "accent")
        start = 230 if payment else 104
        d.arrow((start, y + h / 2), (252, y + h / 2))
        style = "idle dashed" if output[0].startswith("nothing") else "ok" if "+" in "".join(output) else "high"
        text = "\n".join(f"{'~' if 'nothing' in line else '`'}{line}" for line in output)
        d.box(252, y, 160, h, text, style)
    d.arrow((26, 110), (26, 296))
    d.label(36, 210, "~time")
    for at, text in ((12, "~+I insert"), (92, "~-U, +U before and after an update"), (340, "~-D delete")):
        d.label(at, 326, text)
    return d


# Also the records of the program in docs/concepts/time.md.
RECORDS = (1, 3, 8, 11, 13, 22)


def windows() -> Drawing:
    """Draw the same records in tumbling, sliding and session windows."""
    d = Drawing(
        "Tumbling, sliding and session windows",
        "Records at 1, 3, 8, 11, 13 and 22 seconds. Tumbling windows of 10 seconds have 3, 2 and 1 records. "
        "Sliding windows of 10 seconds that start every 5 have 2, 3, 3, 2, 1 and 1. Session windows with a "
        "gap of 4 seconds have 2, 3 and 1.",
        446,
    )

    def x(second: float) -> float:
        return 74 + second * 11

    for second in (0, 10, 20, 30):
        d.line((x(second), 48), (x(second), 434), style="dashed")
        d.label(x(second), 66, f"~{second} s", "over", "middle")
    d.label(12, 32, "#records")
    d.line((x(0), 28), (x(30), 28))
    for second in RECORDS:
        d.dot(x(second), 28, str(second), radius=10)
    spans = [
        ("#Tumbling, 10 s", 88, [(0, 10, 0), (10, 20, 0), (20, 30, 0)], "accent"),
        (
            "#Sliding, 10 s every 5 s",
            164,
            [(-5, 5, 0), (0, 10, 1), (5, 15, 2), (10, 20, 3), (15, 25, 4), (20, 30, 5)],
            "ok",
        ),
        ("#Session, gap 4 s", 374, [(1, 7, 0), (8, 17, 0), (22, 26, 0)], "low"),
    ]
    for title, y, windows, style in spans:
        d.label(12, y, title, "over")
        for start, end, row in windows:
            count = sum(start <= second < end for second in RECORDS)
            d.box(x(start) + 1, y + 10 + 31 * row, (end - start) * 11 - 2, 27, f"~{count}", style)
    return d


def backpressure() -> Drawing:
    """Draw how a slow operator stops the reading of its sources."""
    d = Drawing(
        "Backpressure",
        "A slow operator behind an exchange does not finish its input within the slice. The pending input "
        "becomes part of its snapshot and comes first in the next epoch. Until it is processed, the sources "
        "of this input get no new split ranges. The vertex before the exchange is shown as backpressured, the "
        "sink behind as idle.",
        470,
    )
    d.box(12, 12, 396, 46, "#job master\nno new split ranges while input is pending", "accent")
    d.box(12, 100, 260, 60, "#source → map\nbackpressured", "idle")
    d.box(12, 196, 260, 60, "#receive buffer\none epoch's input, from all senders", "low")
    d.box(12, 292, 260, 60, "#slow operator\nbusy for its whole slice", "high")
    d.box(12, 388, 260, 60, "#sink\nidle", "idle")
    d.arrow((90, 58), (90, 100))
    d.label(98, 84, "~split ranges")
    for top, text in ((160, "blocks"), (256, "records, while the slice lasts"), (352, "results")):
        d.arrow((90, top), (90, top + 36))
        d.label(98, top + 22, f"~{text}")
    d.arrow((272, 212), (292, 212), (292, 130), (272, 130), style="high")
    d.label(300, 160, "~over 8 MiB", "high")
    d.label(300, 176, "~queued: the", "high")
    d.label(300, 192, "~sender blocks", "high")
    d.arrow((272, 322), (396, 322), (396, 58), style="high")
    d.label(290, 342, "~pending input", "high")
    d.label(290, 358, "~is reported", "high")
    return d


def slot_memory() -> Drawing:
    """Draw the memory of an executor and its slots."""
    d = Drawing(
        "The memory of a slot",
        "A task manager is a Spark executor: a JVM whose heap is spark.executor.memory, and one Python "
        "process for each slot in the memory overhead. A slot holds the program and its modules, the state "
        "tables with base and overlay, the blocks it sends and has received, and SQL columns. With the lmdb "
        "backend, state is in a mapped file.",
        470,
    )
    d.lane(8, 8, 404, 346, "executor: taskmanager.memory.process.size")
    d.box(20, 40, 110, 302, "#JVM\nSpark\n\n~heap:\n~spark.executor\n~.memory", "idle")
    d.lane(140, 40, 166, 302, "slot 0")
    for y, h, text, style in (
        (70, 44, "#program\nyour code, modules", "plain"),
        (122, 64, "#state tables\nbase: as of last file\noverlay: new changes", "ok"),
        (194, 44, "#SQL columns\nkeyed state, buffers", "ok"),
        (246, 44, "#blocks\nto send, received", "accent"),
        (298, 36, "pending input", "low"),
    ):
        d.box(150, y, 146, h, text, style)
    d.lane(316, 40, 86, 302, "slot 1")
    d.label(359, 190, "equal", anchor="middle")
    d.label(359, 206, "share", anchor="middle")
    d.box(
        140,
        378,
        262,
        80,
        "#host's disk and page cache\nstate.backend.type: lmdb\nmapped files, not in the share",
        "ok dashed",
    )
    d.arrow((223, 342), (223, 378))
    d.label(20, 398, "~State larger")
    d.label(20, 414, "~than memory:")
    return d


def rescaling() -> Drawing:
    """Draw key groups that move when the parallelism changes from two to three."""
    d = Drawing(
        "Rescaling by key groups",
        "With eight key groups, two subtasks own the groups 0 to 3 and 4 to 7. With three subtasks, they own "
        "0 to 2, 3 to 5, and 6 to 7. Each reads its groups from the state files of the former subtasks.",
        340,
    )
    d.label(12, 30, "#key_group = hash(key) · 8 / 2³²")
    styles = ("accent", "ok", "low")
    for y, parallelism, title in ((52, 2, "parallelism 2"), (226, 3, "parallelism 3")):
        d.label(12, y + 14, f"#{title}")
        for group in range(8):
            d.box(16 + group * 49, y + 62, 45, 30, str(group), styles[group * parallelism // 8])
        for subtask in range(parallelism):
            owned = [group for group in range(8) if group * parallelism // 8 == subtask]
            d.box(16 + owned[0] * 49, y + 26, len(owned) * 49 - 4, 30, f"#subtask {subtask}", styles[subtask])
    for group in range(8):
        d.arrow((38 + group * 49, 146), (38 + group * 49, 222))
    d.label(210, 188, "~each subtask reads its groups from the state files", "over", "middle")
    return d


DIAGRAMS: dict[str, Callable[[], Drawing]] = {
    "record-path": record_path,
    "checkpoint": checkpoint,
    "exchange": exchange,
    "watermarks": watermarks,
    "join-changelog": join_changelog,
    "windows": windows,
    "backpressure": backpressure,
    "slot-memory": slot_memory,
    "rescaling": rescaling,
}


if __name__ == "__main__":
    for name, draw in DIAGRAMS.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg())
