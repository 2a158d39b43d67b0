import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.flink.table.api.*;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/** Evaluates expressions, one per line, on Flink: type TAB value TAB expression. */
public class Evaluate {
    static TableEnvironment env;

    static String message(Throwable e) {
        String last = "";
        for (Throwable t = e; t != null; t = t.getCause()) { if (t.getMessage() != null) last = t.getMessage(); }
        return last.replace("\n", " / ").replace("\t", " ");
    }

    static String type(String expression) {
        try {
            return env.sqlQuery("SELECT " + expression).getResolvedSchema().getColumnDataTypes().get(0).getLogicalType().asSummaryString();
        } catch (Throwable e) { return "! " + message(e); }
    }

    static List<String> values(List<String> expressions) {
        StringBuilder query = new StringBuilder("SELECT ");
        for (int i = 0; i < expressions.size(); i++) {
            // A null where the type has none would fail the query: RAND keeps the column from being NOT NULL.
            query.append(i == 0 ? "" : ", ").append("CASE WHEN RAND() < 2 THEN CAST(").append(expressions.get(i)).append(" AS STRING) END");
        }
        try (CloseableIterator<Row> rows = env.executeSql(query.toString()).collect()) {
            Row row = rows.next();
            List<String> results = new ArrayList<>();
            for (int i = 0; i < expressions.size(); i++) {
                Object value = row.getField(i);
                results.add(value == null ? "NULL" : "= " + value.toString().replace("\n", "\\n").replace("\t", "\\t"));
            }
            return results;
        } catch (Throwable e) {
            if (expressions.size() == 1) return Collections.singletonList("! " + message(e));
            int half = expressions.size() / 2;
            List<String> results = new ArrayList<>(values(expressions.subList(0, half)));
            results.addAll(values(expressions.subList(half, expressions.size())));
            return results;
        }
    }

    public static void main(String[] arguments) throws Exception {
        env = TableEnvironment.create(EnvironmentSettings.inBatchMode());
        env.getConfig().set("table.local-time-zone", "UTC");
        boolean onlyTypes = arguments.length > 2;
        List<String> all = Files.readAllLines(Paths.get(arguments[0]));
        String[] types = new String[all.size()], results = new String[all.size()];
        List<Integer> good = new ArrayList<>();
        for (int i = 0; i < all.size(); i++) {
            types[i] = type(all.get(i));
            results[i] = "";
            if (!types[i].startsWith("!")) good.add(i);
        }
        if (!onlyTypes) for (int start = 0; start < good.size(); start += 40) {
            List<Integer> some = good.subList(start, Math.min(start + 40, good.size()));
            List<String> texts = new ArrayList<>();
            for (int i : some) texts.add(all.get(i));
            List<String> v = values(texts);
            for (int k = 0; k < some.size(); k++) results[some.get(k)] = v.get(k);
        }
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < all.size(); i++) out.append(types[i]).append('\t').append(results[i]).append('\t').append(all.get(i)).append('\n');
        Files.write(Paths.get(arguments[1]), out.toString().getBytes(StandardCharsets.UTF_8));
    }
}
