import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/** Sends statements to a SQL gateway through Flink's JDBC driver, and prints a line for each row. */
public class JdbcStatements {
    public static void main(String[] args) throws Exception {
        Class.forName("org.apache.flink.table.jdbc.FlinkDriver");
        try (Connection connection = DriverManager.getConnection("jdbc:flink://" + args[0])) {
            System.out.println(connection.getCatalog() + "." + connection.getSchema());
            for (int i = 1; i < args.length; i++) {
                ask(connection, args[i]);
            }
        }
    }

    private static void ask(Connection connection, String text) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            if (!statement.execute(text)) {
                System.out.println("OK");
                return;
            }
            ResultSet rows = statement.getResultSet();
            int columns = rows.getMetaData().getColumnCount();
            while (rows.next()) {
                List<String> values = new ArrayList<>();
                for (int c = 1; c <= columns; c++) {
                    values.add(rows.getMetaData().getColumnName(c) + "=" + rows.getObject(c));
                }
                System.out.println(values);
            }
        }
    }
}
