import java.io.PrintWriter;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.internal.TableEnvironmentInternal;
import org.apache.flink.table.expressions.Expression;
import org.apache.flink.table.expressions.ResolvedExpression;
import org.apache.flink.table.operations.ProjectQueryOperation;
import org.apache.flink.table.expressions.DefaultSqlFactory;
import org.apache.flink.table.types.AbstractDataType;
import org.apache.flink.table.types.DataType;
import org.apache.flink.types.Row;

/**
 * Writes the tests of Flink's built-in functions as facts: one line of JSON for each expression, with the columns it
 * reads, and the value and type, or the error, that Flink's developers expect.
 *
 * <p>Usage: DumpFunctionTests TESTS_JAR OUTPUT
 */
public class DumpFunctionTests {
    private static final String PACKAGE = "org/apache/flink/table/planner/functions/";
    private static PrintWriter out;
    private static TableEnvironment env;

    public static void main(String[] args) throws Exception {
        out = new PrintWriter(args[1], StandardCharsets.UTF_8);
        List<String> names = new ArrayList<>();
        try (JarFile jar = new JarFile(args[0])) {
            for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements(); ) {
                String name = entries.nextElement().getName();
                if (name.startsWith(PACKAGE) && name.endsWith("ITCase.class") && !name.contains("$")) {
                    names.add(name.substring(0, name.length() - 6).replace('/', '.'));
                }
            }
        }
        names.sort(null);
        for (String name : names) {
            Class<?> type = Class.forName(name);
            if (type.getSuperclass().getSimpleName().equals("BuiltInFunctionTestBase")) {
                dump(type);
            }
        }
        out.close();
    }

    private static void dump(Class<?> type) throws Exception {
        Constructor<?> constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        Object test = constructor.newInstance();
        Configuration settings = (Configuration) call(test, "getConfiguration");
        env = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        int number = 0;
        for (Object spec : (Iterable<?>) ((Stream<?>) call(test, "getTestSetSpecs")).collect(Collectors.toList())) {
            int inSpec = 0;
            for (Object item : (List<?>) get(spec, "testItems")) {
                String id = type.getSimpleName() + "-" + number + "-" + inSpec++;
                try {
                    String line = line(id, spec, item, settings);
                    if (line != null) {
                        out.println(line);
                    }
                } catch (Throwable e) {
                    System.err.println("SKIP " + id + " " + e);
                }
            }
            number++;
        }
    }

    private static String line(String id, Object spec, Object item, Configuration settings) throws Exception {
        Object[] data = (Object[]) get(spec, "fieldData");
        AbstractDataType<?>[] types = (AbstractDataType<?>[]) get(spec, "fieldDataTypes");
        boolean isSql = item.getClass().getSimpleName().startsWith("Sql");
        boolean isError = item.getClass().getSimpleName().contains("Error");
        Object expression = get(item, "expression");
        List<String> parts = new ArrayList<>();
        parts.add("\"id\":" + text(id));
        Object description = get(spec, "description");
        Object definition = get(spec, "definition");
        parts.add("\"function\":" + text(definition == null ? String.valueOf(description) : definition.toString()));
        List<?> functions = (List<?>) get(spec, "functions");
        if (!functions.isEmpty()) {
            parts.add("\"udf\":" + list(functions.stream().map(f -> text(((Class<?>) f).getSimpleName()))));
        }
        if (!settings.toMap().isEmpty()) {
            parts.add("\"settings\":{" + settings.toMap().entrySet().stream()
                    .map(e -> text(e.getKey()) + ":" + text(e.getValue())).collect(Collectors.joining(",")) + "}");
        }
        Table input = null;
        if (data != null) {
            for (Object f : functions) {
                env.dropTemporarySystemFunction(((Class<?>) f).getSimpleName());
                env.createTemporarySystemFunction(((Class<?>) f).getSimpleName(), (Class) f);
            }
            DataTypes.Field[] unused = null;
            if (types == null) {
                input = env.fromValues(Row.of(data));
            } else {
                DataTypes.UnresolvedField[] fields = new DataTypes.UnresolvedField[types.length];
                for (int i = 0; i < types.length; i++) {
                    fields[i] = DataTypes.FIELD("f" + i, types[i]);
                }
                input = env.fromValues(DataTypes.ROW(fields), Row.of(data));
            }
            List<DataType> resolved = input.getResolvedSchema().getColumnDataTypes();
            parts.add("\"types\":" + list(resolved.stream().map(d -> text(d.getLogicalType().asSerializableString()))));
            List<String> values = new ArrayList<>();
            for (Object d : data) {
                values.add(value(d));
            }
            parts.add("\"data\":[" + String.join(",", values) + "]");
        }
        if (!isSql) {
            if (item.getClass().getSimpleName().startsWith("TableApiSql")) {
                return null;
            }
            List<?> all = expression instanceof List ? (List<?>) expression : List.of(expression);
            List<String> written = new ArrayList<>();
            if (input == null) {
                input = env.fromValues(Row.of(0));
            }
            Table chosen = input.select(all.toArray(new Expression[0]));
            ProjectQueryOperation project = (ProjectQueryOperation) chosen.getQueryOperation();
            for (ResolvedExpression e : project.getProjectList()) {
                written.add(e.asSerializableString(DefaultSqlFactory.INSTANCE));
            }
            parts.add("\"api\":true");
            expression = String.join(", ", written);
        }
        parts.add("\"sql\":" + text(expression.toString()));
        if (isError) {
            parts.add("\"error\":" + text((String) get(item, "errorMessage")));
            parts.add("\"validation\":" + get(item, "expectedDuringValidation"));
        } else {
            List<String> results = new ArrayList<>();
            for (Object r : (List<?>) get(item, "results")) {
                results.add(value(r));
            }
            parts.add("\"results\":[" + String.join(",", results) + "]");
            List<String> kinds = new ArrayList<>();
            for (Object k : (List<?>) get(item, "dataTypes")) {
                DataType resolved = ((TableEnvironmentInternal) env).getCatalogManager().getDataTypeFactory()
                        .createDataType((AbstractDataType<?>) k);
                kinds.add(text(resolved.getLogicalType().asSummaryString()));
            }
            parts.add("\"result_types\":[" + String.join(",", kinds) + "]");
        }
        return "{" + String.join(",", parts) + "}";
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
            return list(((List<?>) v).stream().map(DumpFunctionTests::value));
        }
        if (v instanceof Map) {
            return "{\"map\":" + list(((Map<?, ?>) v).entrySet().stream().map(e -> "[" + value(e.getKey()) + "," + value(e.getValue()) + "]")) + "}";
        }
        if (v instanceof Row) {
            Row row = (Row) v;
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

    // --- access to private members

    private static Object get(Object of, String name) throws Exception {
        for (Class<?> c = of.getClass(); c != null; c = c.getSuperclass()) {
            for (Field f : c.getDeclaredFields()) {
                if (f.getName().equals(name)) {
                    f.setAccessible(true);
                    return f.get(of);
                }
            }
        }
        throw new NoSuchFieldException(name);
    }

    private static Object call(Object of, String name) throws Exception {
        for (Class<?> c = of.getClass(); c != null; c = c.getSuperclass()) {
            for (Method m : c.getDeclaredMethods()) {
                if (m.getName().equals(name) && m.getParameterCount() == 0) {
                    m.setAccessible(true);
                    return m.invoke(of);
                }
            }
        }
        throw new NoSuchMethodException(name);
    }
}
