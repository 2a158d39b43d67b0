import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** One query of the benchmark on Flink's own Java SQL: FlinkSql records columns insert key=value... */
public class FlinkSql {
    static double run(String[] args, long records) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setParallelism(2);
        env.getConfig().enableObjectReuse();
        StreamTableEnvironment t = StreamTableEnvironment.create(env);
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            t.getConfig().set(pair[0], pair[1]);
        }
        DataStream<Long> numbers =
                env.fromSource(new NumberSequenceSource(0, records - 1), WatermarkStrategy.noWatermarks(), "numbers");
        Schema.Builder schema = Schema.newBuilder().column("f0", "BIGINT").columnByExpression("n", "f0");
        if (args[2].contains("ts")) {
            schema.columnByExpression("ts", "TO_TIMESTAMP_LTZ(f0 / 10, 3)").watermark("ts", "ts - INTERVAL '1' SECOND");
        }
        t.createTemporaryView("seq", numbers, schema.build());
        t.executeSql("CREATE TABLE snk (" + args[1] + ") WITH ('connector' = 'blackhole')");
        long started = System.nanoTime();
        t.executeSql("INSERT INTO snk " + args[2]).await();
        return (System.nanoTime() - started) / 1e9;
    }

    public static void main(String[] args) throws Exception {
        long records = Long.parseLong(args[0]);
        run(args, records / 4);
        System.out.println("{\"records\": " + records + ", \"seconds\": " + run(args, records) + "}");
        System.exit(0);
    }
}
