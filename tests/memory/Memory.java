import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.clusterframework.TaskExecutorProcessSpec;
import org.apache.flink.runtime.clusterframework.TaskExecutorProcessUtils;
import org.apache.flink.runtime.jobmanager.JobManagerProcessSpec;
import org.apache.flink.runtime.jobmanager.JobManagerProcessUtils;

/** Prints Flink's memory model: reads key=value pairs per line and writes a line of sizes or "error: ...". */
public class Memory {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(memory(line));
        }
    }

    static String memory(String line) {
        Configuration config = new Configuration();
        for (String pair : line.split("\t")) {
            String[] parts = pair.split("=", 2);
            if (parts.length == 2) {
                config.setString(parts[0], parts[1]);
            }
        }
        try {
            return line.contains("jobmanager") ? jobManager(config) : taskManager(config);
        } catch (Throwable e) {
            return "error: " + String.valueOf(e.getMessage()).replace('\n', ' ');
        }
    }

    static String taskManager(Configuration config) {
        TaskExecutorProcessSpec s = TaskExecutorProcessUtils.processSpecFromConfig(config);
        return String.join(
                " ",
                "" + s.getFlinkMemory().getFrameworkHeap().getBytes(),
                "" + s.getFlinkMemory().getFrameworkOffHeap().getBytes(),
                "" + s.getTaskHeapSize().getBytes(),
                "" + s.getTaskOffHeapSize().getBytes(),
                "" + s.getNetworkMemSize().getBytes(),
                "" + s.getManagedMemorySize().getBytes(),
                "" + s.getJvmMetaspaceSize().getBytes(),
                "" + s.getJvmOverheadSize().getBytes());
    }

    static String jobManager(Configuration config) {
        JobManagerProcessSpec s = JobManagerProcessUtils.processSpecFromConfig(config);
        return String.join(
                " ",
                "" + s.getJvmHeapMemorySize().getBytes(),
                "" + s.getJvmDirectMemorySize().getBytes(),
                "" + s.getJvmMetaspaceSize().getBytes(),
                "" + s.getJvmOverheadSize().getBytes());
    }
}
