import static org.apache.spark.sql.connector.catalog.TableCapability.BATCH_READ;
import static org.apache.spark.sql.connector.catalog.TableCapability.BATCH_WRITE;
import static org.apache.spark.sql.connector.catalog.TableCapability.TRUNCATE;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Tables in the memory of one JVM into which Spark can MERGE; what Delta and Iceberg are to others. */
public class MergingCatalog implements TableCatalog {
  private static final Map<Identifier, Rows> TABLES = new ConcurrentHashMap<>();
  private String name;

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
  }

  public String name() {
    return name;
  }

  public Identifier[] listTables(String[] namespace) {
    return TABLES.keySet().toArray(new Identifier[0]);
  }

  public Table loadTable(Identifier identifier) throws NoSuchTableException {
    Rows found = TABLES.get(identifier);
    if (found == null) throw new NoSuchTableException(identifier);
    return found;
  }

  public Table createTable(
      Identifier identifier,
      Column[] columns,
      Transform[] partitions,
      Map<String, String> properties) {
    TABLES.put(identifier, new Rows(identifier, columns, properties));
    return TABLES.get(identifier);
  }

  public Table alterTable(Identifier identifier, TableChange... changes) {
    Rows table = TABLES.get(identifier);
    for (TableChange each : changes) {
      if (!(each instanceof TableChange.SetProperty set)) {
        throw new UnsupportedOperationException(each.toString());
      }
      table.properties.put(set.property(), set.value());
    }
    return table;
  }

  public boolean dropTable(Identifier identifier) {
    return TABLES.remove(identifier) != null;
  }

  public void renameTable(Identifier from, Identifier to) {
    throw new UnsupportedOperationException();
  }

  /** A table whose every write but an append puts whole new rows in the place of the old. */
  static class Rows implements SupportsRead, SupportsWrite, SupportsRowLevelOperations {
    final Map<String, String> properties;
    private final Identifier identifier;
    private final Column[] columns;
    private volatile List<InternalRow> rows = List.of();

    Rows(Identifier identifier, Column[] columns, Map<String, String> properties) {
      this.identifier = identifier;
      this.columns = columns;
      this.properties = new HashMap<>(properties);
    }

    public String name() {
      return identifier.toString();
    }

    public Column[] columns() {
      return columns;
    }

    public StructType schema() {
      return CatalogV2Util.v2ColumnsToStructType(columns);
    }

    public Map<String, String> properties() {
      return properties;
    }

    public Set<TableCapability> capabilities() {
      return Set.of(BATCH_READ, BATCH_WRITE, TRUNCATE);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> new Reading(this);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new Writing(identifier, false);
    }

    public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
      return () ->
          new RowLevelOperation() {
            public Command command() {
              return info.command();
            }

            public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
              return Rows.this.newScanBuilder(options);
            }

            public WriteBuilder newWriteBuilder(LogicalWriteInfo write) {
              return new Writing(identifier, true);
            }
          };
    }
  }

  record Reading(Rows table) implements Scan, Batch {
    public StructType readSchema() {
      return table.schema();
    }

    public Batch toBatch() {
      return this;
    }

    public InputPartition[] planInputPartitions() {
      return new InputPartition[] {new Part(new ArrayList<>(table.rows))};
    }

    public PartitionReaderFactory createReaderFactory() {
      return part -> new Reader(((Part) part).rows().iterator());
    }
  }

  record Part(List<InternalRow> rows) implements InputPartition, WriterCommitMessage {}

  static class Reader implements PartitionReader<InternalRow> {
    private final Iterator<InternalRow> rows;

    Reader(Iterator<InternalRow> rows) {
      this.rows = rows;
    }

    public boolean next() {
      return rows.hasNext();
    }

    public InternalRow get() {
      return rows.next();
    }

    public void close() {}
  }

  record Writing(Identifier identifier, boolean replaces)
      implements SupportsTruncate, Write, BatchWrite {
    public WriteBuilder truncate() {
      return new Writing(identifier, true);
    }

    public Write build() {
      return this;
    }

    public BatchWrite toBatch() {
      return this;
    }

    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      StructType schema = TABLES.get(identifier).schema();
      return (part, task) -> new Writer(schema);
    }

    public void commit(WriterCommitMessage[] messages) {
      Rows table = TABLES.get(identifier);
      List<InternalRow> rows = new ArrayList<>(replaces ? List.of() : table.rows);
      for (WriterCommitMessage each : messages) rows.addAll(((Part) each).rows());
      table.rows = rows;
    }

    public void abort(WriterCommitMessage[] messages) {}
  }

  static class Writer implements DataWriter<InternalRow> {
    private final List<InternalRow> rows = new ArrayList<>();
    private final StructType schema;

    Writer(StructType schema) {
      this.schema = schema;
    }

    public void write(InternalRow row) {
      InternalRow copy = row.copy();
      Object[] values = new Object[schema.size()];
      // Up to Spark 4.1, what MERGE does with the row comes before its columns.
      int first = row.numFields() - values.length;
      for (int i = 0; i < values.length; i++) {
        values[i] = copy.get(first + i, schema.apply(i).dataType());
      }
      rows.add(new GenericInternalRow(values));
    }

    public WriterCommitMessage commit() {
      return new Part(rows);
    }

    public void abort() {}

    public void close() {}
  }
}
