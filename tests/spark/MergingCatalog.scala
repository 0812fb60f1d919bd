import java.util.{Map => JavaMap, Set => JavaSet}
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableCapability._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.types.{StructField, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Tables in the memory of one JVM into which Spark can MERGE; what Delta and Iceberg are to others.
  *
  * In Scala, as every Spark brings a compiler of that, and not every Java one of its own.
  */
class MergingCatalog extends TableCatalog {
  import MergingCatalog._

  private var ownName = ""

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = ownName = name

  override def name: String = ownName

  override def listTables(namespace: Array[String]): Array[Identifier] =
    tables.keySet.asScala.toArray

  override def loadTable(identifier: Identifier): Table =
    Option(tables.get(identifier)).getOrElse(throw new NoSuchTableException(identifier))

  override def createTable(
      identifier: Identifier,
      columns: Array[Column],
      partitions: Array[Transform],
      properties: JavaMap[String, String]): Table = {
    tables.put(identifier, new Rows(identifier, columns, properties))
    tables.get(identifier)
  }

  override def alterTable(identifier: Identifier, changes: TableChange*): Table = {
    val table = tables.get(identifier)
    changes.foreach {
      case set: TableChange.SetProperty => table.properties.put(set.property, set.value)
      case other => throw new UnsupportedOperationException(other.toString)
    }
    table
  }

  override def dropTable(identifier: Identifier): Boolean = tables.remove(identifier) != null

  override def renameTable(from: Identifier, to: Identifier): Unit =
    throw new UnsupportedOperationException
}

object MergingCatalog {
  private val tables = new ConcurrentHashMap[Identifier, Rows]

  /** A table whose every write but an append puts whole new rows in the place of the old. */
  class Rows(identifier: Identifier, given: Array[Column], before: JavaMap[String, String])
      extends SupportsRead
      with SupportsWrite
      with SupportsRowLevelOperations {
    @volatile var rows: Seq[InternalRow] = Nil

    override val properties: JavaMap[String, String] = new ConcurrentHashMap(before)

    override def name: String = identifier.toString

    override def columns: Array[Column] = given

    override def schema: StructType =
      StructType(given.map(each => StructField(each.name, each.dataType, each.nullable)))

    override def capabilities: JavaSet[TableCapability] =
      JavaSet.of(BATCH_READ, BATCH_WRITE, TRUNCATE)

    override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
      () => new Reading(this)

    override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
      new Writing(identifier, false)

    override def newRowLevelOperationBuilder(
        info: RowLevelOperationInfo): RowLevelOperationBuilder = () =>
      new RowLevelOperation {
        override def command: RowLevelOperation.Command = info.command

        override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
          Rows.this.newScanBuilder(options)

        override def newWriteBuilder(write: LogicalWriteInfo): WriteBuilder =
          new Writing(identifier, true)
      }
  }

  class Reading(table: Rows) extends Scan with Batch {
    override def readSchema: StructType = table.schema

    override def toBatch: Batch = this

    override def planInputPartitions: Array[InputPartition] = Array(Part(table.rows))

    override def createReaderFactory: PartitionReaderFactory = Readers
  }

  case class Part(rows: Seq[InternalRow]) extends InputPartition with WriterCommitMessage

  object Readers extends PartitionReaderFactory {
    override def createReader(part: InputPartition): PartitionReader[InternalRow] =
      new Reader(part.asInstanceOf[Part].rows.iterator)
  }

  class Reader(rows: Iterator[InternalRow]) extends PartitionReader[InternalRow] {
    private var row: InternalRow = _

    override def next: Boolean = {
      val more = rows.hasNext
      if (more) row = rows.next()
      more
    }

    override def get: InternalRow = row

    override def close(): Unit = ()
  }

  class Writing(identifier: Identifier, replaces: Boolean)
      extends SupportsTruncate
      with Write
      with BatchWrite {
    override def truncate: WriteBuilder = new Writing(identifier, true)

    override def build: Write = this

    override def toBatch: BatchWrite = this

    override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory =
      Writers(tables.get(identifier).schema)

    override def commit(messages: Array[WriterCommitMessage]): Unit = {
      val table = tables.get(identifier)
      val kept = if (replaces) Nil else table.rows
      table.rows = kept ++ messages.flatMap(_.asInstanceOf[Part].rows)
    }

    override def abort(messages: Array[WriterCommitMessage]): Unit = ()
  }

  case class Writers(schema: StructType) extends DataWriterFactory {
    override def createWriter(part: Int, task: Long): DataWriter[InternalRow] = new Writer(schema)
  }

  class Writer(schema: StructType) extends DataWriter[InternalRow] {
    private var rows = Vector.empty[InternalRow]

    override def write(row: InternalRow): Unit = {
      val copy = row.copy()
      // Up to Spark 4.1, what MERGE does with the row comes before its columns.
      val first = row.numFields - schema.size
      val values = schema.indices.map(i => copy.get(first + i, schema(i).dataType))
      rows :+= new GenericInternalRow(values.toArray[Any])
    }

    override def commit: WriterCommitMessage = Part(rows)

    override def abort(): Unit = ()

    override def close(): Unit = ()
  }
}
