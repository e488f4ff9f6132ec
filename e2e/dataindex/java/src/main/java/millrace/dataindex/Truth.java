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
import io.serverlessworkflow.impl.lifecycle.WorkflowCompletedEvent;
import io.serverlessworkflow.impl.lifecycle.WorkflowExecutionListener;
import io.serverlessworkflow.impl.lifecycle.WorkflowFailedEvent;
import io.serverlessworkflow.impl.lifecycle.WorkflowStartedEvent;
import io.serverlessworkflow.impl.lifecycle.ce.TaskCancelledCEData;
import io.serverlessworkflow.impl.lifecycle.ce.TaskCompletedCEData;
import io.serverlessworkflow.impl.lifecycle.ce.TaskFailedCEData;
import io.serverlessworkflow.impl.lifecycle.ce.TaskRetriedCEData;
import io.serverlessworkflow.impl.lifecycle.ce.TaskStartedCEData;
import io.serverlessworkflow.impl.lifecycle.ce.WorkflowCancelledCEData;
import io.serverlessworkflow.impl.lifecycle.ce.WorkflowCompletedCEData;
import io.serverlessworkflow.impl.lifecycle.ce.WorkflowFailedCEData;
import io.serverlessworkflow.impl.lifecycle.ce.WorkflowStartedCEData;
import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.OffsetDateTime;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What the SDK says of instances and tasks, heard beside the events that it publishes: by it a
 * reader of the events is judged. Only the times come from the events, as Java objects and not as
 * JSON, because the SDK takes another one for each listener.
 */
final class Truth implements WorkflowExecutionListener {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Map<String, ObjectNode> instances = new LinkedHashMap<>();
  private final Map<String, Map<String, ObjectNode>> tasks = new LinkedHashMap<>();

  @Override
  public synchronized void onWorkflowStarted(WorkflowStartedEvent ev) {
    Document document = ev.workflowContext().definition().workflow().getDocument();
    instance(ev.workflowContext().instanceData().id())
        .put("namespace", document.getNamespace())
        .put("name", document.getName())
        .put("version", document.getVersion());
  }

  @Override
  public synchronized void onWorkflowCompleted(WorkflowCompletedEvent ev) {
    instance(ev.workflowContext().instanceData().id())
        .set("output", JSON.valueToTree(ev.output().asJavaObject()));
  }

  @Override
  public synchronized void onWorkflowFailed(WorkflowFailedEvent ev) {
    instance(ev.workflowContext().instanceData().id()).set("error", error(ev.cause()));
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
    Object output = ev.taskContext().output().asJavaObject();
    ended(ev, "COMPLETED").set("output", JSON.valueToTree(output));
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
    if (!row.has("status")) {
      row.put("status", "RUNNING");
    }
  }

  /** A position that runs again, in a loop or a retry, shows how it ended last. */
  private synchronized ObjectNode ended(TaskEvent ev, String status) {
    return task(ev).put("status", status);
  }

  /** Takes the times from the data of an event that is published. */
  synchronized void published(Object data) {
    if (data instanceof WorkflowStartedCEData d) {
      first(instance(d.name()), d.startedAt());
    } else if (data instanceof WorkflowCompletedCEData d) {
      last(instance(d.name()), d.completedAt());
    } else if (data instanceof WorkflowFailedCEData d) {
      last(instance(d.name()), d.faultedAt());
    } else if (data instanceof WorkflowCancelledCEData d) {
      last(instance(d.name()), d.cancelledAt());
    } else if (data instanceof TaskStartedCEData d) {
      first(task(d.workflow(), d.task()), d.startedAt());
    } else if (data instanceof TaskRetriedCEData d) {
      first(task(d.workflow(), d.task()), d.retriedAt());
    } else if (data instanceof TaskCompletedCEData d) {
      last(task(d.workflow(), d.task()), d.completedAt());
    } else if (data instanceof TaskFailedCEData d) {
      last(task(d.workflow(), d.task()), d.faultedAt());
    } else if (data instanceof TaskCancelledCEData d) {
      last(task(d.workflow(), d.task()), d.cancelledAt());
    }
  }

  private static void first(ObjectNode row, OffsetDateTime at) {
    if (!row.has("start")) {
      row.put("start", at.toInstant().toString());
    }
  }

  private static void last(ObjectNode row, OffsetDateTime at) {
    row.put("end", at.toInstant().toString());
  }

  private ObjectNode instance(String id) {
    return instances.computeIfAbsent(id, name -> JSON.createObjectNode().put("id", name));
  }

  private ObjectNode task(TaskEvent ev) {
    return task(
            ev.workflowContext().instanceData().id(), ev.taskContext().position().jsonPointer())
        .put("name", ev.taskContext().taskName());
  }

  private ObjectNode task(String instance, String position) {
    return tasks
        .computeIfAbsent(instance, id -> new LinkedHashMap<>())
        .computeIfAbsent(position, at -> JSON.createObjectNode().put("position", at));
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
    instance(instance.id()).put("status", instance.status().name());
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
