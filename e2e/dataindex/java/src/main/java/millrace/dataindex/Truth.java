package millrace.dataindex;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.serverlessworkflow.api.types.Document;
import io.serverlessworkflow.impl.WorkflowError;
import io.serverlessworkflow.impl.WorkflowException;
import io.serverlessworkflow.impl.WorkflowInstance;
import io.serverlessworkflow.impl.lifecycle.TaskCancelledEvent;
import io.serverlessworkflow.impl.lifecycle.TaskCompletedEvent;
import io.serverlessworkflow.impl.lifecycle.TaskEvent;
import io.serverlessworkflow.impl.lifecycle.TaskFailedEvent;
import io.serverlessworkflow.impl.lifecycle.TaskRetriedEvent;
import io.serverlessworkflow.impl.lifecycle.TaskStartedEvent;
import io.serverlessworkflow.impl.lifecycle.WorkflowCancelledEvent;
import io.serverlessworkflow.impl.lifecycle.WorkflowCompletedEvent;
import io.serverlessworkflow.impl.lifecycle.WorkflowEvent;
import io.serverlessworkflow.impl.lifecycle.WorkflowExecutionListener;
import io.serverlessworkflow.impl.lifecycle.WorkflowFailedEvent;
import io.serverlessworkflow.impl.lifecycle.WorkflowStartedEvent;
import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What the SDK says of instances and tasks, heard beside the events that it publishes: by it a
 * reader of the events is judged.
 */
final class Truth implements WorkflowExecutionListener {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Map<String, ObjectNode> instances = new LinkedHashMap<>();
  private final Map<String, Map<String, ObjectNode>> tasks = new LinkedHashMap<>();

  @Override
  public synchronized void onWorkflowStarted(WorkflowStartedEvent ev) {
    Document document = ev.workflowContext().definition().workflow().getDocument();
    String id = ev.workflowContext().instanceData().id();
    ObjectNode row = JSON.createObjectNode();
    row.put("id", id);
    row.put("namespace", document.getNamespace());
    row.put("name", document.getName());
    row.put("version", document.getVersion());
    row.put("start", ev.eventDate().toInstant().toString());
    instances.put(id, row);
    tasks.put(id, new LinkedHashMap<>());
  }

  @Override
  public void onWorkflowCompleted(WorkflowCompletedEvent ev) {
    ended(ev).set("output", JSON.valueToTree(ev.output().asJavaObject()));
  }

  @Override
  public void onWorkflowFailed(WorkflowFailedEvent ev) {
    ended(ev).set("error", error(ev.cause()));
  }

  @Override
  public void onWorkflowCancelled(WorkflowCancelledEvent ev) {
    ended(ev);
  }

  private synchronized ObjectNode ended(WorkflowEvent ev) {
    return instances
        .get(ev.workflowContext().instanceData().id())
        .put("end", ev.eventDate().toInstant().toString());
  }

  @Override
  public void onTaskStarted(TaskStartedEvent ev) {
    begun(ev);
  }

  @Override
  public void onTaskRetried(TaskRetriedEvent ev) {
    begun(ev);
  }

  @Override
  public void onTaskCompleted(TaskCompletedEvent ev) {
    ended(ev, "COMPLETED").set("output", JSON.valueToTree(ev.taskContext().output().asJavaObject()));
  }

  @Override
  public void onTaskFailed(TaskFailedEvent ev) {
    ended(ev, "FAULTED").set("error", error(ev.cause()));
  }

  @Override
  public void onTaskCancelled(TaskCancelledEvent ev) {
    ended(ev, "CANCELLED");
  }

  private synchronized void begun(TaskEvent ev) {
    ObjectNode row = task(ev);
    row.put("runs", row.path("runs").asInt() + 1);
    if (!row.has("start")) {
      row.put("start", ev.eventDate().toInstant().toString());
      row.put("status", "RUNNING");
    }
  }

  /** A position that runs again, in a loop or a retry, shows how it ended last. */
  private synchronized ObjectNode ended(TaskEvent ev, String status) {
    ObjectNode row = task(ev);
    row.put("status", status);
    row.put("end", ev.eventDate().toInstant().toString());
    return row;
  }

  private ObjectNode task(TaskEvent ev) {
    return tasks
        .get(ev.workflowContext().instanceData().id())
        .computeIfAbsent(
            ev.taskContext().position().jsonPointer(),
            position ->
                JSON.createObjectNode()
                    .put("position", position)
                    .put("name", ev.taskContext().taskName()));
  }

  private static ObjectNode error(Throwable cause) {
    ObjectNode row = JSON.createObjectNode();
    if (cause instanceof WorkflowException e) {
      WorkflowError error = e.getWorkflowError();
      return row.put("type", error.type())
          .put("status", error.status())
          .put("title", error.title())
          .put("detail", error.details())
          .put("instance", error.instance());
    }
    return row.put("type", cause.getClass().getTypeName()).put("detail", cause.getMessage());
  }

  /** Takes down how an instance is left. */
  synchronized void settle(WorkflowInstance instance) {
    instances.get(instance.id()).put("status", instance.status().name());
  }

  synchronized int size() {
    return instances.size();
  }

  synchronized void write(Path file) throws IOException {
    try (Writer out = Files.newBufferedWriter(file)) {
      for (ObjectNode row : instances.values()) {
        ArrayNode list = row.putArray("tasks");
        tasks.get(row.get("id").asText()).values().forEach(list::add);
        out.write(JSON.writeValueAsString(row));
        out.write('\n');
      }
    }
  }
}
