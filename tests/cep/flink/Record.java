import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.cep.EventComparator;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.functions.TimedOutPartialMatchHandler;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.nfa.compiler.NFACompiler;
import org.apache.flink.cep.operator.CepOperator;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.WithinType;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * Runs cases on Flink's CepOperator: reads a case per line as JSON (see tests/support/cep_cases.py) and writes its
 * result as a line of JSON.
 *
 * <p>An event is (key, name, value, number). Results contain the numbers of events.
 */
public class Record {
    static final ObjectMapper JSON = new ObjectMapper();
    static final TypeInformation<Tuple4<String, String, Integer, Integer>> EVENT =
            Types.TUPLE(Types.STRING, Types.STRING, Types.INT, Types.INT);
    static final OutputTag<Tuple4<String, String, Integer, Integer>> LATE = new OutputTag<>("late", EVENT);
    static List<Object> output = new ArrayList<>();

    /** Conditions on a single event. */
    static class Simple extends SimpleCondition<Tuple4<String, String, Integer, Integer>> {
        final String kind;
        final String text;
        final int number;

        Simple(JsonNode spec) {
            kind = spec.get(0).asText();
            text = spec.get(1).asText();
            number = spec.get(1).asInt();
        }

        @Override
        public boolean filter(Tuple4<String, String, Integer, Integer> e) {
            switch (kind) {
                case "is":
                    return text.contains(e.f1);
                case "below":
                    return e.f2 < number;
                case "above":
                    return e.f2 > number;
                default:
                    throw new IllegalStateException(kind);
            }
        }
    }

    /** Conditions on earlier events of the match. */
    static class Iterative extends IterativeCondition<Tuple4<String, String, Integer, Integer>> {
        final String kind;
        final String pattern;

        Iterative(JsonNode spec) {
            kind = spec.get(0).asText();
            pattern = spec.get(1).asText();
        }

        @Override
        public boolean filter(Tuple4<String, String, Integer, Integer> e, Context<Tuple4<String, String, Integer, Integer>> ctx)
                throws Exception {
            int sum = 0;
            int count = 0;
            int last = -1;
            for (Tuple4<String, String, Integer, Integer> before : ctx.getEventsForPattern(pattern)) {
                sum += before.f2;
                count += 1;
                last = before.f2;
            }
            switch (kind) {
                case "rises":
                    return e.f2 >= last;
                case "sum_below":
                    return sum + e.f2 < 12;
                case "even":
                    return (count + ctx.timestamp()) % 2 == 0;
                default:
                    throw new IllegalStateException(kind);
            }
        }
    }

    static IterativeCondition<Tuple4<String, String, Integer, Integer>> condition(JsonNode spec) {
        String kind = spec.get(0).asText();
        if (kind.equals("rises") || kind.equals("sum_below") || kind.equals("even")) {
            return new Iterative(spec);
        }
        return new Simple(spec);
    }

    static AfterMatchSkipStrategy skip(JsonNode spec) {
        switch (spec.get(0).asText()) {
            case "no_skip":
                return AfterMatchSkipStrategy.noSkip();
            case "skip_to_next":
                return AfterMatchSkipStrategy.skipToNext();
            case "skip_past_last_event":
                return AfterMatchSkipStrategy.skipPastLastEvent();
            case "skip_to_first":
                return spec.get(2).asBoolean()
                        ? AfterMatchSkipStrategy.skipToFirst(spec.get(1).asText()).throwExceptionOnMiss()
                        : AfterMatchSkipStrategy.skipToFirst(spec.get(1).asText());
            default:
                return spec.get(2).asBoolean()
                        ? AfterMatchSkipStrategy.skipToLast(spec.get(1).asText()).throwExceptionOnMiss()
                        : AfterMatchSkipStrategy.skipToLast(spec.get(1).asText());
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static Pattern sequence(JsonNode items, AfterMatchSkipStrategy skip) {
        Pattern p = null;
        for (JsonNode item : items) {
            p = appended(p, item, skip);
            for (JsonNode step : item.get("steps")) {
                apply(p, step);
            }
        }
        return p;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static Pattern appended(Pattern p, JsonNode item, AfterMatchSkipStrategy skip) {
        String join = item.get("join").asText();
        if (item.has("group")) {
            Pattern group = sequence(item.get("group"), AfterMatchSkipStrategy.noSkip());
            switch (join) {
                case "begin":
                    return Pattern.begin(group, skip);
                case "next":
                    return p.next(group);
                case "followed_by":
                    return p.followedBy(group);
                default:
                    return p.followedByAny(group);
            }
        }
        String name = item.get("name").asText();
        switch (join) {
            case "begin":
                return Pattern.begin(name, skip);
            case "next":
                return p.next(name);
            case "followed_by":
                return p.followedBy(name);
            case "followed_by_any":
                return p.followedByAny(name);
            case "not_next":
                return p.notNext(name);
            default:
                return p.notFollowedBy(name);
        }
    }

    static Duration millis(JsonNode step, int index) {
        return step.size() > index && !step.get(index).isNull() ? Duration.ofMillis(step.get(index).asLong()) : null;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void apply(Pattern p, JsonNode step) {
        switch (step.get(0).asText()) {
            case "where":
                p.where(condition(step.get(1)));
                break;
            case "or":
                p.or(condition(step.get(1)));
                break;
            case "until":
                p.until(condition(step.get(1)));
                break;
            case "one_or_more":
                p.oneOrMore(millis(step, 1));
                break;
            case "times":
                p.times(step.get(1).asInt(), millis(step, 2));
                break;
            case "times_from_to":
                p.times(step.get(1).asInt(), step.get(2).asInt(), millis(step, 3));
                break;
            case "times_or_more":
                p.timesOrMore(step.get(1).asInt(), millis(step, 2));
                break;
            case "optional":
                p.optional();
                break;
            case "greedy":
                p.greedy();
                break;
            case "consecutive":
                p.consecutive();
                break;
            case "allow_combinations":
                p.allowCombinations();
                break;
            case "within":
                p.within(millis(step, 1));
                break;
            case "within_previous":
                p.within(millis(step, 1), WithinType.PREVIOUS_AND_CURRENT);
                break;
            default:
                throw new IllegalStateException(step.toString());
        }
    }

    static List<Object> line(String kind, Map<String, List<Tuple4<String, String, Integer, Integer>>> match, long timestamp) {
        List<Object> events = new ArrayList<>();
        String key = null;
        for (Map.Entry<String, List<Tuple4<String, String, Integer, Integer>>> entry : match.entrySet()) {
            List<Integer> numbers = new ArrayList<>();
            for (Tuple4<String, String, Integer, Integer> e : entry.getValue()) {
                numbers.add(e.f3);
                key = e.f0;
            }
            List<Object> pair = new ArrayList<>();
            pair.add(entry.getKey());
            pair.add(numbers);
            events.add(pair);
        }
        List<Object> line = new ArrayList<>();
        line.add(kind);
        line.add(key);
        line.add(events);
        line.add(timestamp);
        return line;
    }

    static class Matches extends PatternProcessFunction<Tuple4<String, String, Integer, Integer>, String> {
        @Override
        public void processMatch(
                Map<String, List<Tuple4<String, String, Integer, Integer>>> match, Context ctx, Collector<String> out) {
            output.add(line("match", match, ctx.timestamp()));
        }
    }

    static class MatchesAndTimeOuts extends Matches
            implements TimedOutPartialMatchHandler<Tuple4<String, String, Integer, Integer>> {
        @Override
        public void processTimedOutMatch(
                Map<String, List<Tuple4<String, String, Integer, Integer>>> match, Context ctx) {
            output.add(line("timeout", match, ctx.timestamp()));
        }
    }

    static class ByValue implements EventComparator<Tuple4<String, String, Integer, Integer>> {
        @Override
        public int compare(Tuple4<String, String, Integer, Integer> a, Tuple4<String, String, Integer, Integer> b) {
            return Integer.compare(a.f2, b.f2);
        }
    }

    static class ByKey implements KeySelector<Tuple4<String, String, Integer, Integer>, String> {
        @Override
        public String getKey(Tuple4<String, String, Integer, Integer> e) {
            return e.f0;
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void run(JsonNode c) throws Exception {
        Pattern pattern = sequence(c.get("pattern"), skip(c.get("skip")));
        boolean processing = c.get("processing").asBoolean();
        NFACompiler.NFAFactory factory = NFACompiler.compileFactory(pattern, c.get("timeouts").asBoolean());
        CepOperator operator =
                new CepOperator(
                        EVENT.createSerializer(new org.apache.flink.api.common.serialization.SerializerConfigImpl()),
                        processing,
                        factory,
                        c.get("comparator").asBoolean() ? new ByValue() : null,
                        pattern.getAfterMatchSkipStrategy(),
                        c.get("timeouts").asBoolean() ? new MatchesAndTimeOuts() : new Matches(),
                        c.get("late").asBoolean() ? LATE : null);
        try (KeyedOneInputStreamOperatorTestHarness harness =
                new KeyedOneInputStreamOperatorTestHarness(operator, new ByKey(), Types.STRING)) {
            harness.open();
            int late = 0;
            int number = 0;
            for (JsonNode item : c.get("input")) {
                switch (item.get(0).asText()) {
                    case "e":
                        harness.processElement(
                                new StreamRecord<>(
                                        Tuple4.of(
                                                item.get(1).asText(),
                                                item.get(2).asText(),
                                                item.get(3).asInt(),
                                                number++),
                                        item.get(4).asLong()));
                        break;
                    case "w":
                        harness.processWatermark(item.get(1).asLong());
                        break;
                    default:
                        harness.setProcessingTime(item.get(1).asLong());
                }
                java.util.Queue side = harness.getSideOutput(LATE);
                while (side != null && side.size() > 0) {
                    StreamRecord r = (StreamRecord) side.poll();
                    Tuple4<String, String, Integer, Integer> e = (Tuple4) r.getValue();
                    List<Object> line = new ArrayList<>();
                    line.add("late");
                    line.add(e.f0);
                    line.add(e.f3);
                    line.add(r.getTimestamp());
                    output.add(line);
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = in.readLine()) != null) {
            output = new ArrayList<>();
            Map<String, Object> result = new LinkedHashMap<>();
            try {
                run(JSON.readTree(line));
            } catch (Throwable e) {
                Throwable root = e;
                while (root.getCause() != null) {
                    root = root.getCause();
                }
                result.put("error", root.getClass().getSimpleName() + ": " + root.getMessage());
            }
            result.put("out", output);
            out.println(JSON.writeValueAsString(result));
            out.flush();
        }
    }
}
