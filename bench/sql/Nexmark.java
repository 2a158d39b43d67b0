import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.Collections;
import java.util.Set;
import java.util.function.Function;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.data.binary.BinaryStringData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.functions.LookupFunction;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Nexmark on Flink's own Java SQL, with the events of nexmark_events.py.
 *
 * <p>Nexmark ddl.sql query.sql [key=value ...] reads commands from stdin. "run EVENTS" runs the query into blackhole
 * and prints its seconds and CPU seconds. "rows EVENTS" prints its rows, which have one column.
 */
public class Nexmark {
    static final long START = 1_704_067_200_000L;
    static final long[] TENS = {100, 1000, 10_000, 100_000, 1_000_000, 10_000_000};
    static final int POOL = 1024;

    /** Letters in a fixed order, the same in Python. */
    static final class Texts {
        private long state;

        Texts(long seed) {
            state = seed;
        }

        int number(int below) {
            state = state * 6364136223846793005L + 1442695040888963407L;
            return (int) ((state >>> 33) % below);
        }

        String some(int first, int below, int count) {
            StringBuilder builder = new StringBuilder();
            for (int i = 0; i < count; i++) {
                builder.append((char) (first + number(below)));
            }
            return builder.toString();
        }

        String letters(int count) {
            return some('a', 26, count);
        }

        String around(int size) {
            return letters(size - size / 5 + number(2 * (size / 5)));
        }

        String url() {
            String path = letters(4) + "/" + letters(4) + "/" + letters(4);
            return "https://www.nexmark.com/" + path + "/item.htm?query=1";
        }
    }

    static StringData[] pool(long seed, Function<Texts, String> make) {
        Texts texts = new Texts(seed);
        StringData[] strings = new StringData[POOL];
        for (int i = 0; i < POOL; i++) {
            strings[i] = text(make.apply(texts));
        }
        return strings;
    }

    static StringData text(String text) {
        BinaryStringData string = BinaryStringData.fromString(text);
        string.ensureMaterialized();
        return string;
    }

    static StringData[] texts(String... all) {
        StringData[] strings = new StringData[all.length];
        for (int i = 0; i < all.length; i++) {
            strings[i] = text(all[i]);
        }
        return strings;
    }

    /** Generates the event of a number. */
    public static final class Events extends RichMapFunction<Long, RowData> {
        private final long each;
        private final int parallelism;
        private transient StringData[] channels, urls, bids, items, descriptions, auctions;
        private transient StringData[] names, emails, cards, cities, states, persons;

        /** Each subtask reads one range of numbers; events are numbered such that time advances equally in all. */
        Events(long count, int parallelism) {
            this.each = count / parallelism;
            this.parallelism = parallelism;
        }

        @Override
        public void open(OpenContext context) {
            channels = new StringData[10_004];
            urls = new StringData[10_004];
            Texts texts = new Texts(1);
            String[] hot = {"Google", "Facebook", "Baidu", "Apple"};
            for (int i = 0; i < channels.length; i++) {
                channels[i] = text(i < 4 ? hot[i] : "channel-" + (i - 4));
                String url = texts.url();
                if (i >= 4 && texts.number(10) > 0) {
                    url += "&channel_id=" + texts.number(1 << 30);
                }
                urls[i] = text(url);
            }
            bids = pool(2, t -> t.around(68));
            items = pool(3, t -> t.around(20));
            descriptions = pool(4, t -> t.around(100));
            auctions = pool(5, t -> t.around(332));
            String[] first = {
                "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"
            };
            String[] last = {
                "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"
            };
            names = new StringData[99];
            for (int i = 0; i < 99; i++) {
                names[i] = text(first[i / 9] + " " + last[i % 9]);
            }
            emails = pool(6, t -> t.letters(7) + "@" + t.letters(5) + ".com");
            cards = pool(7, t -> t.some('0', 10, 4) + " " + t.some('0', 10, 4) + " " + t.some('0', 10, 4) + " "
                    + t.some('0', 10, 4));
            cities = texts("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle",
                    "Kent", "Cheyenne");
            states = texts("AZ", "CA", "ID", "OR", "WA", "WY");
            persons = pool(8, t -> t.around(132));
        }

        static long mixed(long number, int which) {
            long z = (number * 2 + which) * 0x9E3779B97F4A7C15L;
            z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
            z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
            return z ^ (z >>> 31);
        }

        static long bits(long z, int shift, int count) {
            return (z >>> shift) & ((1L << count) - 1);
        }

        static StringData of(StringData[] pool, long which) {
            return pool[(int) which];
        }

        static long price(long z) {
            long ten = TENS[(int) (bits(z, 0, 16) % 6)];
            return ten + bits(z, 16, 32) % (ten * 9);
        }

        static long person(long z, long newest) {
            long active = Math.min(newest + 1, 1000);
            return newest + 1 - active + bits(z, 24, 24) % (active + 10);
        }

        static TimestampData time(long number, long more) {
            return TimestampData.fromEpochMillis(START + number / 10 + more);
        }

        @Override
        public RowData map(Long value) {
            long offset = value % each;
            long number = (offset / 50 * parallelism + value / each) * 50 + offset % 50;
            long z = mixed(number, 1);
            long w = mixed(number, 2);
            long position = number % 50;
            if (position == 0) {
                return GenericRowData.of(0, newPerson(number, z), null, null);
            }
            if (position < 4) {
                return GenericRowData.of(1, null, newAuction(number, z, w), null);
            }
            return GenericRowData.of(2, null, null, newBid(number, z, w));
        }

        RowData newPerson(long number, long z) {
            return GenericRowData.of(
                    1000 + number / 50,
                    of(names, bits(z, 0, 16) % 99),
                    of(emails, bits(z, 16, 10)),
                    of(cards, bits(z, 26, 10)),
                    of(cities, bits(z, 36, 8) % 10),
                    of(states, bits(z, 44, 8) % 6),
                    time(number, 0),
                    of(persons, bits(z, 52, 10)));
        }

        RowData newAuction(long number, long z, long w) {
            long newest = number / 50;
            long seller = bits(z, 0, 2) > 0 ? newest / 100 * 100 : person(z, newest);
            long price = price(w);
            return GenericRowData.of(
                    1000 + newest * 3 + number % 50 - 1,
                    of(items, bits(w, 48, 8)),
                    of(descriptions, bits(w, 54, 10)),
                    price,
                    price + price(z),
                    time(number, 0),
                    time(number, 1 + bits(z, 4, 16) % 333),
                    1000 + seller,
                    10 + bits(z, 48, 8) % 5,
                    of(auctions, bits(z, 54, 10)));
        }

        RowData newBid(long number, long z, long w) {
            long person = number / 50;
            long auction = person * 3 + 2;
            long oldest = Math.max(auction - 100, 0);
            long bidFor = bits(z, 0, 1) > 0
                    ? auction / 100 * 100
                    : oldest + bits(z, 1, 16) % (auction - oldest + 1 + 10);
            long bidder = bits(z, 20, 2) > 0 ? person / 100 * 100 + 1 : person(z, person);
            long more = bits(w, 49, 15);
            long channel = bits(w, 48, 1) > 0 ? 4 + more % 10_000 : more & 3;
            return GenericRowData.of(
                    1000 + bidFor,
                    1000 + bidder,
                    price(w),
                    of(channels, channel),
                    of(urls, channel),
                    time(number, 0),
                    of(bids, bits(z, 48, 10)));
        }
    }

    /** The connector `nexmark`. */
    public static final class EventsFactory implements DynamicTableSourceFactory {
        private static final ConfigOption<Long> EVENTS = ConfigOptions.key("events").longType().noDefaultValue();

        @Override
        public String factoryIdentifier() {
            return "nexmark";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of(EVENTS);
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DynamicTableSource createDynamicTableSource(Context context) {
            FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
            helper.validate();
            RowType type = (RowType) context.getPhysicalRowDataType().getLogicalType();
            return new EventsTable(helper.getOptions().get(EVENTS), type);
        }
    }

    static final class EventsTable implements ScanTableSource {
        private final long count;
        private final RowType type;

        EventsTable(long count, RowType type) {
            this.count = count;
            this.type = type;
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            return new DataStreamScanProvider() {
                @Override
                public DataStream<RowData> produceDataStream(ProviderContext c, StreamExecutionEnvironment env) {
                    return env.fromSource(
                                    new NumberSequenceSource(0, count - 1), WatermarkStrategy.noWatermarks(), "numbers")
                            .map(new Events(count, env.getParallelism()))
                            .returns(InternalTypeInfo.of(type));
                }

                @Override
                public boolean isBounded() {
                    return true;
                }
            };
        }

        @Override
        public DynamicTableSource copy() {
            return new EventsTable(count, type);
        }

        @Override
        public String asSummaryString() {
            return "nexmark";
        }
    }

    /** The connector `nexmark-side`: a row for each of 10,000 keys. */
    public static final class SideFactory implements DynamicTableSourceFactory {
        @Override
        public String factoryIdentifier() {
            return "nexmark-side";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of();
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DynamicTableSource createDynamicTableSource(Context context) {
            return new SideTable();
        }
    }

    static final class SideTable implements LookupTableSource {
        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            return LookupFunctionProvider.of(new Side());
        }

        @Override
        public DynamicTableSource copy() {
            return new SideTable();
        }

        @Override
        public String asSummaryString() {
            return "nexmark-side";
        }
    }

    public static final class Side extends LookupFunction {
        private transient RowData[] rows;

        @Override
        public Collection<RowData> lookup(RowData key) {
            if (rows == null) {
                rows = new RowData[10_000];
                for (int i = 0; i < rows.length; i++) {
                    rows[i] = GenericRowData.of((long) i, text("side-" + i));
                }
            }
            return Collections.singletonList(rows[(int) key.getLong(0)]);
        }
    }

    /** Nexmark's own function of q14. */
    public static final class CountChar extends ScalarFunction {
        public long eval(String text, String letter) {
            long count = 0;
            char expected = letter.charAt(0);
            for (int i = 0; i < text.length(); i++) {
                if (text.charAt(i) == expected) {
                    count++;
                }
            }
            return count;
        }
    }

    static StreamTableEnvironment environment(String[] args, long events) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", "2");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("table.local-time-zone", "UTC");
        for (int i = 2; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            settings.setString(pair[0], pair[1]);
        }
        StreamTableEnvironment t =
                StreamTableEnvironment.create(StreamExecutionEnvironment.getExecutionEnvironment(settings));
        t.createTemporarySystemFunction("count_char", CountChar.class);
        for (String statement : Files.readString(Path.of(args[0])).replace("{events}", "" + events).split(";")) {
            if (!statement.isBlank()) {
                t.executeSql(statement);
            }
        }
        return t;
    }

    static void run(String[] args, long events) throws Exception {
        StreamTableEnvironment t = environment(args, events);
        String query = Files.readString(Path.of(args[1]));
        com.sun.management.OperatingSystemMXBean system =
                (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = system.getProcessCpuTime();
        long started = System.nanoTime();
        t.sqlQuery(query).insertInto(TableDescriptor.forConnector("blackhole").build()).execute().await();
        double seconds = (System.nanoTime() - started) / 1e9;
        System.out.println("@" + seconds + " " + (system.getProcessCpuTime() - cpu) / 1e9);
    }

    static void rows(String[] args, long events) throws Exception {
        StreamTableEnvironment t = environment(args, events);
        try (CloseableIterator<Row> rows = t.executeSql(Files.readString(Path.of(args[1]))).collect()) {
            while (rows.hasNext()) {
                System.out.println("=" + rows.next().getField(0));
            }
        }
        System.out.println("@0");
    }

    public static void main(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("@0");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.trim().split(" ");
            if (words[0].equals("run")) {
                run(args, Long.parseLong(words[1]));
            } else {
                rows(args, Long.parseLong(words[1]));
            }
        }
        System.exit(0);
    }
}
