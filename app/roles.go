package app

import (
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
)

// roles assembles what the configuration asks this process to do. The order of
// the invocations is the order of starting, and the reverse that of stopping.
func roles(cfg configs.Config) fx.Option {
	parts := []fx.Option{
		fx.Provide(newLoops, newDeadLetters, newReplays, newRebuilds, newLimitStore, newPurges),
		telemetryModule, storageModule, transportModule, workflowsModule, participantsModule, triggerStoreModule, scheduleStoreModule, ingestModule,
	}
	var start []fx.Option
	add := func(role configs.Role, module fx.Option, run any) {
		if !cfg.HasRole(role) {
			return
		}
		parts = append(parts, module)
		if run != nil {
			start = append(start, fx.Invoke(run))
		}
	}
	add(configs.RoleRelay, relayModule, runRelay)
	add(configs.RoleMaintenance, maintenanceModule, runMaintenance)
	if !cfg.Brokerless() { // both read and write topics
		add(configs.RoleMaintenance, fx.Provide(newReplayKeeper), runReplays)
		add(configs.RoleMaintenance, fx.Provide(newRebuildKeeper), runRebuilds)
	}
	add(configs.RoleWorkflows, sagasModule, runWorkflows)
	add(configs.RoleTriggers, triggersModule, runTriggers)
	add(configs.RoleTriggers, schedulesModule, runSchedules)
	add(configs.RoleCoordinator, coordinatorModule, runCoordinator)
	add(configs.RoleWorker, workerModule, runKubernetes)
	add(configs.RoleWorker, fx.Options(), runWorker)
	add(configs.RoleProjections, projectionsModule, nil)
	if !cfg.Brokerless() { // without Kafka there is nothing to consume, whatever roles offer consumers
		start = append(start, fx.Invoke(runRouter))
	}
	add(configs.RoleAPI, apiModule, runAPI)
	add(configs.RoleAPI, fx.Options(), runGRPC)
	start = append(start, fx.Invoke(runAdmin))
	return fx.Options(append(parts, start...)...)
}

// asConsumer provides the result of a constructor as a consumer of the router.
func asConsumer(constructor any) fx.Option {
	return fx.Provide(fx.Annotate(constructor, fx.ResultTags(`group:"consumers"`)))
}

// asConsumers is asConsumer for a constructor of several.
func asConsumers(constructor any) fx.Option {
	return fx.Provide(fx.Annotate(constructor, fx.ResultTags(`group:"consumers,flatten"`)))
}
