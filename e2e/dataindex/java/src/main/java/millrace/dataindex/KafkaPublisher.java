package millrace.dataindex;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cloudevents.CloudEvent;
import io.cloudevents.core.data.PojoCloudEventData;
import io.serverlessworkflow.impl.events.EventPublisher;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends the events of the SDK as they are, and writes down what it sent. */
final class KafkaPublisher implements EventPublisher {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Encoding encoding;
  private final String topic;
  private final Truth truth;
  private final Producer<String, byte[]> producer; // null: nothing is sent
  private final Writer record; // null: nothing is written
  private final AtomicReference<Exception> failure = new AtomicReference<>();
  private int sent;

  KafkaPublisher(Encoding encoding, String topic, String bootstrap, Path record, Truth truth)
      throws IOException {
    this.encoding = encoding;
    this.topic = topic;
    this.truth = truth;
    this.record = record == null ? null : Files.newBufferedWriter(record);
    this.producer =
        bootstrap == null
            ? null
            : new KafkaProducer<>(
                Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap),
                new StringSerializer(),
                new ByteArraySerializer());
  }

  /**
   * The SDK calls it on the thread that made the event, several at once where branches run, and
   * ignores what it throws.
   */
  @Override
  public synchronized CompletableFuture<Void> publish(CloudEvent event) {
    try {
      ProducerRecord<String, byte[]> out = encoding.encode(topic, instance(event), event);
      if (record != null) {
        record.write(line(out));
        record.write('\n');
      }
      if (producer != null) {
        producer.send(out, (metadata, e) -> failed(e));
      }
      if (event.getData() instanceof PojoCloudEventData<?> data) {
        truth.published(data.getValue());
      }
      sent++;
      return CompletableFuture.completedFuture(null);
    } catch (Exception e) {
      failed(e);
      return CompletableFuture.failedFuture(e);
    }
  }

  /** Returns how many events there were, once all are acknowledged. */
  int flush() throws Exception {
    if (producer != null) {
      producer.flush();
    }
    if (failure.get() != null) {
      throw failure.get();
    }
    synchronized (this) {
      return sent;
    }
  }

  @Override
  public void close() {
    if (producer != null) {
      producer.close();
    }
    try {
      if (record != null) {
        record.close();
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Called by the producer's thread too, for which flush and close wait: it takes no lock. */
  private void failed(Exception e) {
    if (e != null) {
      failure.compareAndSet(null, e);
    }
  }

  /** The SDK names the instance "name" in events of workflows and "workflow" in those of tasks. */
  private static String instance(CloudEvent event) throws IOException {
    JsonNode data = JSON.readTree(event.getData().toBytes());
    return data.path(data.has("workflow") ? "workflow" : "name").asText();
  }

  private static String line(ProducerRecord<String, byte[]> out) throws IOException {
    ObjectNode line = JSON.createObjectNode();
    line.put("key", out.key());
    ArrayNode headers = line.putArray("headers");
    for (Header header : out.headers()) {
      headers.addArray().add(header.key()).add(new String(header.value(), StandardCharsets.UTF_8));
    }
    line.put("value", new String(out.value(), StandardCharsets.UTF_8));
    return JSON.writeValueAsString(line);
  }
}
