package millrace.dataindex;

import static io.serverlessworkflow.api.WorkflowReader.readWorkflowFromClasspath;

import io.serverlessworkflow.impl.WorkflowApplication;
import io.serverlessworkflow.impl.WorkflowDefinition;
import io.serverlessworkflow.impl.WorkflowInstance;
import io.serverlessworkflow.impl.WorkflowModel;
import io.serverlessworkflow.impl.WorkflowStatus;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs workflows in the CNCF Serverless Workflow Java SDK and publishes the lifecycle events that
 * the SDK makes to Kafka.
 *
 * <pre>
 * --mode       bare (default), structured or binary: see Encoding
 * --bootstrap  Kafka brokers; without, nothing is sent
 * --topic      defaults to flow-lifecycle-out
 * --record     file for the records as they are sent, one JSON object a line
 * --truth      file for what the SDK itself says of every instance at the end
 * --rounds     how often every workflow is run; defaults to 1
 * </pre>
 *
 * It ends with 0 when every instance ended as its workflow is meant to and every record was
 * acknowledged.
 */
public final class Main {
  private static final long PATIENCE_SECONDS = 60;

  private final WorkflowApplication app;
  private final Truth truth;
  private final List<Run> runs = new ArrayList<>();

  /** One instance and how it must be left. */
  private record Run(
      WorkflowInstance instance, CompletableFuture<WorkflowModel> end, WorkflowStatus expected) {}

  private Main(WorkflowApplication app, Truth truth) {
    this.app = app;
    this.truth = truth;
  }

  public static void main(String[] args) throws Exception {
    Map<String, String> options = options(args);
    Encoding encoding = Encoding.of(options.getOrDefault("mode", "bare"));
    String topic = options.getOrDefault("topic", "flow-lifecycle-out");
    int rounds = Integer.parseInt(options.getOrDefault("rounds", "1"));

    Truth truth = new Truth();
    KafkaPublisher publisher =
        new KafkaPublisher(
            encoding, topic, options.get("bootstrap"), path(options, "record"), truth);
    try (WorkflowApplication app =
        WorkflowApplication.builder().withEventPublisher(publisher).withListener(truth).build()) {
      Main main = new Main(app, truth);
      for (int i = 0; i < rounds; i++) {
        main.startAll();
      }
      main.awaitAll();
      System.out.printf("%d instances, %d events%n", truth.size(), publisher.flush());
    }
    if (options.containsKey("truth")) {
      truth.write(path(options, "truth"));
    }
    System.exit(0); // an endless wait holds a timer
  }

  private void startAll() throws Exception {
    start("order", Map.of("orderId", "ORD-789", "quantity", 3), WorkflowStatus.COMPLETED);
    start("loop", Map.of("lines", List.of(5, 7, 11)), WorkflowStatus.COMPLETED);
    start("retry", Map.of(), WorkflowStatus.COMPLETED);
    start("caught", Map.of(), WorkflowStatus.COMPLETED);
    start("fork", Map.of(), WorkflowStatus.COMPLETED);
    start("nested", Map.of("aisles", List.of("a", "b")), WorkflowStatus.COMPLETED);
    start("fault", Map.of(), WorkflowStatus.FAULTED);
    start("broken", Map.of(), WorkflowStatus.FAULTED);
    start("endless", Map.of(), WorkflowStatus.WAITING);

    // Suspended while it waits: one resumes and completes, one stays, one is cancelled.
    WorkflowInstance resumed = start("pause", Map.of(), WorkflowStatus.COMPLETED);
    WorkflowInstance stays = start("pause", Map.of(), WorkflowStatus.SUSPENDED);
    WorkflowInstance cancelled = start("pause", Map.of(), WorkflowStatus.CANCELLED);
    for (WorkflowInstance instance : List.of(resumed, stays, cancelled)) {
      await(instance, WorkflowStatus.WAITING);
    }
    require(resumed.suspend(), "suspend");
    require(stays.suspend(), "suspend");
    require(cancelled.cancel(), "cancel");
    require(resumed.resume(), "resume");
  }

  private WorkflowInstance start(String file, Map<String, Object> input, WorkflowStatus expected)
      throws IOException {
    WorkflowDefinition definition =
        app.workflowDefinition(readWorkflowFromClasspath("workflows/" + file + ".yaml"));
    WorkflowInstance instance = definition.instance(input);
    runs.add(new Run(instance, instance.start(), expected));
    return instance;
  }

  private void awaitAll() throws Exception {
    for (Run run : runs) {
      if (run.expected == WorkflowStatus.COMPLETED) {
        run.end.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
      } else if (run.expected != WorkflowStatus.WAITING
          && run.expected != WorkflowStatus.SUSPENDED) {
        try {
          run.end.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
          throw new IllegalStateException(run.instance + " completed");
        } catch (TimeoutException e) {
          throw e;
        } catch (Exception e) {
          // It is meant to end badly; how is asked next.
        }
      }
      await(run.instance, run.expected);
      truth.settle(run.instance);
    }
  }

  /** Waits until an instance has a status. */
  private static void await(WorkflowInstance instance, WorkflowStatus status) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
    while (instance.status() != status) {
      if (System.nanoTime() > deadline) {
        throw new TimeoutException(instance + " is not " + status);
      }
      TimeUnit.MILLISECONDS.sleep(5);
    }
  }

  private static void require(boolean ok, String what) {
    if (!ok) {
      throw new IllegalStateException("the SDK refuses to " + what);
    }
  }

  private static Map<String, String> options(String[] args) {
    Map<String, String> options = new HashMap<>();
    for (int i = 0; i < args.length; i += 2) {
      if (!args[i].startsWith("--") || i + 1 == args.length) {
        throw new IllegalArgumentException("not an option with a value: " + args[i]);
      }
      options.put(args[i].substring(2), args[i + 1]);
    }
    return options;
  }

  private static Path path(Map<String, String> options, String name) {
    return options.containsKey(name) ? Path.of(options.get(name)) : null;
  }
}
