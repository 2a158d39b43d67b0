import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.nfa.compiler.NFACompiler;
import org.apache.flink.cep.operator.CepOperator;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.state.storage.JobManagerCheckpointStorage;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;
import org.apache.flink.util.Collector;

/** Measures Flink's snapshot of a number of keys with one open run each: StateSize keys. */
public class StateSize {
    static class None extends PatternProcessFunction<Tuple3<Integer, String, Long>, Integer> {
        @Override
        public void processMatch(Map<String, List<Tuple3<Integer, String, Long>>> m, Context c, Collector<Integer> o) {}
    }

    public static void main(String[] args) throws Exception {
        int keys = Integer.parseInt(args[0]);
        TypeInformation<Tuple3<Integer, String, Long>> type = Types.TUPLE(Types.INT, Types.STRING, Types.LONG);
        Pattern<Tuple3<Integer, String, Long>, ?> pattern =
                Pattern.<Tuple3<Integer, String, Long>>begin("a")
                        .where(SimpleCondition.of(e -> e.f1.equals("a")))
                        .followedBy("b")
                        .where(SimpleCondition.of(e -> e.f1.equals("b")))
                        .within(Duration.ofMillis(1000));
        CepOperator<Tuple3<Integer, String, Long>, Integer, Integer> operator =
                new CepOperator<>(
                        type.createSerializer(new org.apache.flink.api.common.serialization.SerializerConfigImpl()),
                        false,
                        NFACompiler.compileFactory(pattern, false),
                        null,
                        null,
                        new None(),
                        null);
        try (KeyedOneInputStreamOperatorTestHarness<Integer, Tuple3<Integer, String, Long>, Integer> harness =
                new KeyedOneInputStreamOperatorTestHarness<>(operator, e -> e.f0, Types.INT)) {
            // The default limit is 5 MB.
            harness.setCheckpointStorage(new JobManagerCheckpointStorage(Integer.MAX_VALUE));
            harness.open();
            for (int k = 0; k < keys; k++) {
                harness.processElement(new StreamRecord<>(Tuple3.of(k, "a", 1000L), 1000L));
            }
            harness.processWatermark(1000L);
            OperatorSubtaskState state = harness.snapshot(1, 1);
            System.out.println("bytes per key: " + (double) state.getStateSize() / keys);
        }
        System.exit(0);
    }
}
