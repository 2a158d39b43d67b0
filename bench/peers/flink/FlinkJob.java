import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;

/** The benchmark's programs on Flink's own Java API, in one JVM, Flink's defaults. */
public class FlinkJob {
    static final int WORDS = 10_000;
    static final int RATE = 1_000;
    static final double WARM_UP_SECONDS = 2.0;
    static final List<double[]> SAMPLES = Collections.synchronizedList(new ArrayList<>());

    static Map<String, String> options = new HashMap<>();

    static long option(String name, long other) {
        return options.containsKey(name) ? Long.parseLong(options.get(name)) : other;
    }

    static DataStream<Long> numbers(StreamExecutionEnvironment env, long records) {
        return env.fromSource(
                new NumberSequenceSource(0, records - 1), WatermarkStrategy.noWatermarks(), "numbers");
    }

    static void mapFilter(StreamExecutionEnvironment env, long records) {
        numbers(env, records).map(x -> x * 3 + 1).returns(Types.LONG).filter(x -> x % 2 == 0)
                .sinkTo(new DiscardingSink<>());
    }

    static void keyedReduce(StreamExecutionEnvironment env, long records) {
        final long keys = option("keys", 1000);
        numbers(env, records)
                .map(x -> Tuple2.of(x * 7919 % keys, 1L)).returns(Types.TUPLE(Types.LONG, Types.LONG))
                .keyBy(t -> t.f0, Types.LONG)
                .reduce((a, b) -> Tuple2.of(a.f0, a.f1 + b.f1))
                .sinkTo(new DiscardingSink<>());
    }

    static String line(long i) {
        String[] words = new String[10];
        for (int j = 0; j < 10; j++) {
            words[j] = "w" + (i * 31 + j * 977L) % WORDS;
        }
        return String.join(" ", words);
    }

    static void wordCount(StreamExecutionEnvironment env, long records) {
        FlatMapFunction<String, Tuple2<String, Integer>> split = (text, out) -> {
            for (String word : text.split(" ")) {
                out.collect(Tuple2.of(word, 1));
            }
        };
        numbers(env, records).map(FlinkJob::line).returns(Types.STRING)
                .flatMap(split).returns(Types.TUPLE(Types.STRING, Types.INT))
                .keyBy(t -> t.f0, Types.STRING)
                .reduce((a, b) -> Tuple2.of(a.f0, a.f1 + b.f1))
                .sinkTo(new DiscardingSink<>());
    }

    static void windows(StreamExecutionEnvironment env, long records, WindowAssigner<Object, TimeWindow> assigner) {
        final long half = Math.max(records / 2, 1);
        final long keys = option("keys", 10_000);
        KeyedStream<Tuple3<Long, Long, Integer>, Long> keyed = numbers(env, records)
                .map(i -> Tuple3.of(i * 7919 % keys, i % half / 5 - i * 31 % 1000, 1))
                .returns(Types.TUPLE(Types.LONG, Types.LONG, Types.INT))
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Tuple3<Long, Long, Integer>>forBoundedOutOfOrderness(Duration.ofMillis(1000))
                                .withTimestampAssigner((e, t) -> e.f1))
                .keyBy(e -> e.f0, Types.LONG);
        keyed.window(assigner).reduce((a, b) -> Tuple3.of(a.f0, a.f1, a.f2 + b.f2)).sinkTo(new DiscardingSink<>());
    }

    static double now() {
        java.time.Instant t = java.time.Instant.now();
        return t.getEpochSecond() + t.getNano() / 1e9;
    }

    /** Records at a steady rate, each stamped with its scheduled time. */
    static class Clocked extends RichParallelSourceFunction<Tuple2<Long, Double>> {
        final long seconds;

        Clocked(long seconds) {
            this.seconds = seconds;
        }

        @Override
        public void run(SourceContext<Tuple2<Long, Double>> out) throws Exception {
            int mine = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            int all = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
            double start = now();
            for (long i = mine; i < RATE * seconds; i += all) {
                double due = start + (double) i / RATE;
                while (now() < due) {
                    Thread.sleep(0, 200_000);
                }
                out.collect(Tuple2.of(i % 100, due));
            }
        }

        @Override
        public void cancel() {}
    }

    static void latency(StreamExecutionEnvironment env, long seconds) {
        SingleOutputStreamOperator<Tuple2<Long, Double>> values =
                env.addSource(new Clocked(seconds)).returns(Types.TUPLE(Types.LONG, Types.DOUBLE));
        values.keyBy(t -> t.f0, Types.LONG).reduce((a, b) -> b)
                .map(t -> {
                    SAMPLES.add(new double[] {t.f1, now()});
                    return 0L;
                }).returns(Types.LONG)
                .sinkTo(new DiscardingSink<>());
    }

    static void build(StreamExecutionEnvironment env, String program, long records) {
        switch (program) {
            case "map_filter": mapFilter(env, records); break;
            case "keyed_reduce": keyedReduce(env, records); break;
            case "word_count": wordCount(env, records); break;
            case "tumbling": windows(env, records, TumblingEventTimeWindows.of(Duration.ofMillis(10_000))); break;
            case "session": windows(env, records, EventTimeSessionWindows.withGap(Duration.ofMillis(2_000))); break;
            default: throw new IllegalArgumentException("no program " + program);
        }
    }

    static StreamExecutionEnvironment environment() {
        Configuration settings = new Configuration();
        if (options.containsKey("timeout")) {
            settings.setString("execution.buffer-timeout.interval", options.get("timeout"));
        }
        return StreamExecutionEnvironment.createLocalEnvironment((int) option("parallelism", 2), settings);
    }

    static double run(String program, long records) throws Exception {
        StreamExecutionEnvironment env = environment();
        build(env, program, records);
        return env.execute(program).getNetRuntime() / 1000.0;
    }

    static void measureLatency(long seconds) throws Exception {
        for (long length : new long[] {3, seconds}) {
            // The first is to warm up.
            SAMPLES.clear();
            StreamExecutionEnvironment env = environment();
            latency(env, length);
            env.execute("latency");
        }
        double first = SAMPLES.stream().mapToDouble(s -> s[0]).min().getAsDouble();
        double[] took = SAMPLES.stream().filter(s -> s[0] >= first + WARM_UP_SECONDS)
                .mapToDouble(s -> (s[1] - s[0]) * 1000).sorted().toArray();
        System.out.printf("{\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"records\": %d}%n",
                took[took.length / 2], took[took.length * 99 / 100], took.length);
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].replaceFirst("^--", ""), arguments[i + 1]);
        }
        String program = options.get("program");
        if (program.equals("latency")) {
            measureLatency(option("seconds", 10));
            return;
        }
        long records = option("records", 1_000_000);
        // A first job loads and compiles the code of the measured one.
        run(program, Math.max(records / 5, 100_000));
        System.out.printf("{\"records\": %d, \"seconds\": %.3f}%n", records, run(program, records));
    }
}
