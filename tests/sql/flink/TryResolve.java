import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.functions.AggregateFunction;
import org.apache.flink.table.functions.ScalarFunction;

/**
 * Explains statements with `table.optimizer.non-deterministic-update.strategy` = 'TRY_RESOLVE' over tables of the
 * connector of Flink's tests.
 *
 * <p>Usage: TryResolve INPUT OUTPUT. A line of INPUT that is no INSERT is executed first; of each INSERT a line of
 * OUTPUT has the plan, or "!" and the error, with line ends as \n.
 */
public class TryResolve {
    /** A scalar function whose result may differ each time. */
    public static class NdFunc extends ScalarFunction {
        public Long eval(Long value) {
            return value;
        }

        @Override
        public boolean isDeterministic() {
            return false;
        }
    }

    /** An aggregate function whose result may differ each time. */
    public static class NdAgg extends AggregateFunction<Long, long[]> {
        public void accumulate(long[] sum, Long value) {
            sum[0] += value;
        }

        @Override
        public long[] createAccumulator() {
            return new long[1];
        }

        @Override
        public Long getValue(long[] sum) {
            return sum[0];
        }

        @Override
        public boolean isDeterministic() {
            return false;
        }
    }

    public static void main(String[] args) throws Exception {
        TableEnvironment env = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        env.getConfig().set("table.optimizer.non-deterministic-update.strategy", "TRY_RESOLVE");
        env.getConfig().set("table.exec.sink.require-on-conflict", "false");
        env.createTemporarySystemFunction("nd_func", NdFunc.class);
        env.createTemporarySystemFunction("nd_agg", NdAgg.class);
        try (PrintWriter out = new PrintWriter(args[1], StandardCharsets.UTF_8)) {
            for (String line : Files.readAllLines(Path.of(args[0]))) {
                if (!line.startsWith("INSERT")) {
                    env.executeSql(line);
                    continue;
                }
                String answer;
                try {
                    answer = env.explainSql(line);
                } catch (Throwable e) {
                    answer = "!" + e.getMessage();
                }
                out.println(answer.replace("\n", "\\n"));
            }
        }
    }
}
