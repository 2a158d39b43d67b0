// Prints every option of the Flink on the class path: its key and its fallback keys, separated by tabs.
// java -cp 'folder/*' OptionKeys.java jar...   (the jars whose classes are searched)

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.jar.JarFile;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.FallbackKey;

public class OptionKeys {
    public static void main(String[] jars) throws Exception {
        TreeMap<String, List<String>> options = new TreeMap<>();
        for (String jar : jars) {
            try (JarFile file = new JarFile(jar)) {
                file.stream()
                        .map(entry -> entry.getName())
                        .filter(n -> n.startsWith("org/apache/flink/") && n.endsWith("Options.class"))
                        .filter(n -> !n.contains("/shaded/"))
                        // Others in the table's packages are options of one connector or one call.
                        .filter(n -> !n.contains("/table/") || n.matches(".*/table/api/config/(Table|Execution|Optimizer|Materialized).*"))
                        .forEach(n -> read(n.substring(0, n.length() - 6).replace('/', '.'), options));
            }
        }
        options.forEach((key, others) -> System.out.println(key + "\t" + String.join("\t", others)));
    }

    private static void read(String name, TreeMap<String, List<String>> options) {
        try {
            for (Field field : Class.forName(name).getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) || field.getType() != ConfigOption.class) {
                    continue;
                }
                field.setAccessible(true);
                ConfigOption<?> option = (ConfigOption<?>) field.get(null);
                List<String> others = options.computeIfAbsent(option.key(), key -> new ArrayList<>());
                for (FallbackKey other : option.fallbackKeys()) {
                    if (!others.contains(other.getKey())) {
                        others.add(other.getKey());
                    }
                }
            }
        } catch (Throwable e) {
            System.err.println(name + ": " + e);
        }
    }
}
