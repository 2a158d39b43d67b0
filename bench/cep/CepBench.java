import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** The same programs as bench/cep/run.py, on Flink: CepBench case:events:keys ... */
public class CepBench {
    static final String[] LETTERS = {"a", "b", "c", "d"};
    static final AtomicLong MATCHES = new AtomicLong();

    static SimpleCondition<Tuple3<Integer, String, Long>> is(String letter) {
        return SimpleCondition.of(e -> e.f1.equals(letter));
    }

    static Pattern<Tuple3<Integer, String, Long>, ?> pattern(String name) {
        switch (name) {
            case "strict":
            case "keys":
                return Pattern.<Tuple3<Integer, String, Long>>begin("a").where(is("a")).next("b").where(is("b")).next("c").where(is("c"));
            case "relaxed":
                return Pattern.<Tuple3<Integer, String, Long>>begin("a", AfterMatchSkipStrategy.skipPastLastEvent()).where(is("a"))
                        .followedBy("b").where(is("b")).followedBy("c").where(is("c"));
            case "greedy":
                return Pattern.<Tuple3<Integer, String, Long>>begin("a").where(is("a")).next("b").where(is("b")).oneOrMore().greedy()
                        .next("c").where(is("c")).within(Duration.ofMillis(2000));
            case "any":
                return Pattern.<Tuple3<Integer, String, Long>>begin("a").where(is("a")).followedByAny("b").where(is("b"))
                        .followedByAny("c").where(is("c")).within(Duration.ofMillis(2000));
            case "not":
                return Pattern.<Tuple3<Integer, String, Long>>begin("a").where(is("a")).notFollowedBy("b").where(is("b"))
                        .within(Duration.ofMillis(1000));
            default:
                throw new IllegalArgumentException(name);
        }
    }

    static class Count extends PatternProcessFunction<Tuple3<Integer, String, Long>, Integer> {
        @Override
        public void processMatch(Map<String, List<Tuple3<Integer, String, Long>>> match, Context ctx, Collector<Integer> out) {
            MATCHES.incrementAndGet();
            out.collect(match.size());
        }
    }

    static double run(String name, long events, int keys) throws Exception {
        long half = events / 2;
        MATCHES.set(0);
        Configuration settings = new Configuration();
        settings.setString("taskmanager.memory.network.min", "64mb");
        settings.setString("taskmanager.memory.network.max", "64mb");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        env.getConfig().enableObjectReuse();
        WatermarkStrategy<Tuple3<Integer, String, Long>> marks =
                WatermarkStrategy.<Tuple3<Integer, String, Long>>forMonotonousTimestamps().withTimestampAssigner((e, t) -> e.f2);
        CEP.pattern(
                        env.fromSequence(0, events - 1)
                                .map(
                                        i -> {
                                            long h = (i * 2654435761L + 12345L) & 0xffffffffL;
                                            h ^= h >> 15;
                                            h = (h * 2246822519L) & 0xffffffffL;
                                            h ^= h >> 13;
                                            int key = (int) ((h >> 8) % keys) * 2 + (i >= half ? 1 : 0);
                                            return Tuple3.of(key, LETTERS[(int) h & 3], (i % half) / 5);
                                        })
                                .returns(Types.TUPLE(Types.INT, Types.STRING, Types.LONG))
                                .assignTimestampsAndWatermarks(marks)
                                .keyBy(e -> e.f0),
                        pattern(name))
                .process(new Count())
                .returns(Types.INT)
                .sinkTo(new DiscardingSink<>());
        long start = System.nanoTime();
        env.execute();
        return (System.nanoTime() - start) / 1e9;
    }

    public static void main(String[] args) throws Exception {
        // The first job also starts the cluster and compiles the code that later jobs use.
        run("strict", 100_000, 1000);
        for (String arg : args) {
            String[] parts = arg.split(":");
            long events = Long.parseLong(parts[1]);
            double seconds = run(parts[0], events, Integer.parseInt(parts[2]));
            System.out.printf(
                    "{\"case\": \"%s\", \"events\": %d, \"seconds\": %.2f, \"matches\": %d}%n",
                    parts[0], events, seconds, MATCHES.get());
        }
        System.exit(0);
    }
}
