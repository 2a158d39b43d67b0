import java.io.PrintWriter;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.flink.table.test.program.ConfigOptionTestStep;
import org.apache.flink.table.test.program.FailingSqlTestStep;
import org.apache.flink.table.test.program.FunctionTestStep;
import org.apache.flink.table.test.program.SinkTestStep;
import org.apache.flink.table.test.program.SourceTestStep;
import org.apache.flink.table.test.program.SqlTestStep;
import org.apache.flink.table.test.program.StatementSetTestStep;
import org.apache.flink.table.test.program.TableTestProgram;
import org.apache.flink.table.test.program.TableTestStep;
import org.apache.flink.table.test.program.TestStep;
import org.apache.flink.types.Row;

/**
 * Writes the programs of Flink's planner tests as facts: one line of JSON each, with its tables, rows, statements and
 * the rows that Flink's developers expect.
 *
 * <p>Usage: DumpPlannerTests TESTS_JAR OUTPUT
 */
public class DumpPlannerTests {
    public static void main(String[] args) throws Exception {
        List<String> names = new ArrayList<>();
        try (JarFile jar = new JarFile(args[0])) {
            for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements(); ) {
                String name = entries.nextElement().getName();
                if (name.endsWith("TestPrograms.class")) {
                    names.add(name.substring(0, name.length() - 6).replace('/', '.'));
                }
            }
        }
        names.sort(null);
        try (PrintWriter out = new PrintWriter(args[1], StandardCharsets.UTF_8)) {
            for (String name : names) {
                Class<?> type = Class.forName(name);
                for (Field field : type.getDeclaredFields()) {
                    if (Modifier.isStatic(field.getModifiers()) && field.getType() == TableTestProgram.class) {
                        field.setAccessible(true);
                        try {
                            out.println(line(type.getSimpleName(), (TableTestProgram) field.get(null)));
                        } catch (Throwable e) {
                            System.err.println("SKIP " + name + "." + field.getName() + " " + e);
                        }
                    }
                }
            }
        }
    }

    private static String line(String type, TableTestProgram program) {
        return "{\"id\":" + text(type + "/" + program.id)
                + ",\"setup\":" + list(program.setupSteps.stream().map(DumpPlannerTests::step))
                + ",\"run\":" + list(program.runSteps.stream().map(DumpPlannerTests::step)) + "}";
    }

    private static String step(TestStep step) {
        if (step instanceof SourceTestStep) {
            SourceTestStep source = (SourceTestStep) step;
            return "{\"source\":" + table(source) + ",\"rows\":" + value(both(source.dataBeforeRestore, source.dataAfterRestore))
                    + ",\"before\":" + source.dataBeforeRestore.size() + "}";
        }
        if (step instanceof SinkTestStep) {
            SinkTestStep sink = (SinkTestStep) step;
            String expected = sink.expectedBeforeRestore == null && sink.expectedBeforeRestoreStrings == null ? "null"
                    : value(both(strings(sink.expectedBeforeRestore, sink.expectedBeforeRestoreStrings),
                            strings(sink.expectedAfterRestore, sink.expectedAfterRestoreStrings)));
            List<String> last = strings(sink.expectedMaterializedRows, sink.expectedMaterializedStrings);
            return "{\"sink\":" + table(sink) + ",\"expected\":" + expected
                    + ",\"materialized\":" + (last == null ? "null" : value(last)) + ",\"changelog\":" + sink.testChangelogData + "}";
        }
        if (step instanceof SqlTestStep) {
            return "{\"sql\":" + text(((SqlTestStep) step).sql) + "}";
        }
        if (step instanceof StatementSetTestStep) {
            return "{\"statements\":" + value(((StatementSetTestStep) step).statements) + "}";
        }
        if (step instanceof FailingSqlTestStep) {
            FailingSqlTestStep failing = (FailingSqlTestStep) step;
            return "{\"failing\":" + text(failing.sql) + ",\"error\":" + text(failing.expectedErrorMessage) + "}";
        }
        if (step instanceof ConfigOptionTestStep) {
            ConfigOptionTestStep<?> option = (ConfigOptionTestStep<?>) step;
            Object set = option.value;
            String written = set instanceof java.time.Duration ? ((java.time.Duration) set).toMillis() + " ms" : String.valueOf(set);
            return "{\"option\":" + text(option.option.key()) + ",\"value\":" + text(written) + "}";
        }
        if (step instanceof FunctionTestStep) {
            FunctionTestStep function = (FunctionTestStep) step;
            return "{\"function\":" + text(function.name) + ",\"class\":" + text(function.function.getName()) + "}";
        }
        return "{\"other\":" + text(step.getClass().getSimpleName()) + "}";
    }

    private static String table(TableTestStep table) {
        return "{\"name\":" + text(table.name) + ",\"schema\":" + value(table.schemaComponents)
                + ",\"partitions\":" + value(table.partitionKeys) + ",\"options\":{"
                + new TreeMap<>(table.options).entrySet().stream().map(e -> text(e.getKey()) + ":" + text(e.getValue())).collect(Collectors.joining(","))
                + "}}";
    }

    private static <T> List<T> both(List<T> first, List<T> second) {
        List<T> all = new ArrayList<>(first == null ? List.of() : first);
        all.addAll(second == null ? List.of() : second);
        return all;
    }

    private static List<String> strings(List<Row> rows, List<String> strings) {
        return rows == null ? strings : rows.stream().map(Row::toString).collect(Collectors.toList());
    }

    // --- values: types without a JSON equivalent are {"kind": text}

    private static String value(Object v) {
        if (v == null || v instanceof Boolean || v instanceof Integer || v instanceof Long || v instanceof Short || v instanceof Byte) {
            return String.valueOf(v);
        }
        if (v instanceof String || v instanceof Character) {
            return text(v.toString());
        }
        if (v instanceof byte[]) {
            return tagged("bytes", Base64.getEncoder().encodeToString((byte[]) v));
        }
        if (v.getClass().isArray()) {
            List<String> members = new ArrayList<>();
            for (int i = 0; i < Array.getLength(v); i++) {
                members.add(value(Array.get(v, i)));
            }
            return "[" + String.join(",", members) + "]";
        }
        if (v instanceof List) {
            return list(((List<?>) v).stream().map(DumpPlannerTests::value));
        }
        if (v instanceof Map) {
            return "{\"map\":" + list(((Map<?, ?>) v).entrySet().stream().map(e -> "[" + value(e.getKey()) + "," + value(e.getValue()) + "]")) + "}";
        }
        if (v instanceof Row) {
            Row row = (Row) v;
            String kind = row.getKind().shortString();
            if (!kind.equals("+I")) {
                Row plain = Row.copy(row);
                plain.setKind(org.apache.flink.types.RowKind.INSERT);
                return "{" + text(kind) + ":" + value(plain) + "}";
            }
            if (row.getFieldNames(false) != null && !row.getFieldNames(false).isEmpty()) {
                return "{\"named_row\":" + list(row.getFieldNames(false).stream().map(n -> "[" + text(n) + "," + value(row.getField(n)) + "]")) + "}";
            }
            List<String> fields = new ArrayList<>();
            for (int i = 0; i < row.getArity(); i++) {
                fields.add(value(row.getField(i)));
            }
            return "{\"row\":[" + String.join(",", fields) + "]}";
        }
        return tagged(v.getClass().getSimpleName(), v.toString());
    }

    private static String tagged(String kind, String text) {
        return "{" + text(kind) + ":" + text(text) + "}";
    }

    private static String list(Stream<String> members) {
        return "[" + members.collect(Collectors.joining(",")) + "]";
    }

    private static String text(String s) {
        if (s == null) {
            return "null";
        }
        StringBuilder b = new StringBuilder("\"");
        for (char c : s.toCharArray()) {
            if (c == '"' || c == '\\') {
                b.append('\\').append(c);
            } else if (c < 32 || c > 126) {
                b.append(String.format("\\u%04x", (int) c));
            } else {
                b.append(c);
            }
        }
        return b.append('"').toString();
    }
}
