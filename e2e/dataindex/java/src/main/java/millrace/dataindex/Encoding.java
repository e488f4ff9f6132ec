package millrace.dataindex;

import io.cloudevents.CloudEvent;
import io.cloudevents.jackson.JsonFormat;
import io.cloudevents.kafka.KafkaMessageFactory;
import java.util.Locale;
import org.apache.kafka.clients.producer.ProducerRecord;

/** How an event is put into a record of Kafka. */
enum Encoding {
  /** Structured JSON without headers and without a key, as Quarkus Flow first published it. */
  BARE {
    @Override
    ProducerRecord<String, byte[]> encode(String topic, String key, CloudEvent event) {
      return new ProducerRecord<>(topic, null, new JsonFormat().serialize(event));
    }
  },
  /** The structured mode of the Kafka binding: a content-type header. The key is the instance. */
  STRUCTURED {
    @Override
    ProducerRecord<String, byte[]> encode(String topic, String key, CloudEvent event) {
      return KafkaMessageFactory.<String>createWriter(topic, key)
          .writeStructured(event, new JsonFormat());
    }
  },
  /** The binary mode of the Kafka binding: attributes in headers. The key is the instance. */
  BINARY {
    @Override
    ProducerRecord<String, byte[]> encode(String topic, String key, CloudEvent event) {
      return KafkaMessageFactory.<String>createWriter(topic, key).writeBinary(event);
    }
  };

  abstract ProducerRecord<String, byte[]> encode(String topic, String key, CloudEvent event);

  static Encoding of(String name) {
    return valueOf(name.toUpperCase(Locale.ROOT));
  }
}
