import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.calcite.config.Lex;
import org.apache.calcite.sql.parser.SqlParseException;
import org.apache.calcite.sql.parser.SqlParser;
import org.apache.flink.sql.parser.impl.FlinkSqlParserImpl;
import org.apache.flink.sql.parser.validate.FlinkSqlConformance;

/** Prints for each line of a file whether Flink's own parser accepts it: + or -, then the line. */
public class Parse {
    public static void main(String[] arguments) throws Exception {
        SqlParser.Config config = SqlParser.config()
                .withParserFactory(FlinkSqlParserImpl.FACTORY)
                .withConformance(FlinkSqlConformance.DEFAULT)
                .withLex(Lex.JAVA)
                .withIdentifierMaxLength(256);
        StringBuilder output = new StringBuilder();
        for (String line : Files.readAllLines(Paths.get(arguments[0]))) {
            char answer = '+';
            try {
                SqlParser.create(line, config).parseStmtList();
            } catch (SqlParseException e) {
                answer = '-';
            }
            output.append(answer).append(' ').append(line).append('\n');
        }
        Files.write(Paths.get(arguments[1]), output.toString().getBytes(StandardCharsets.UTF_8));
    }
}
