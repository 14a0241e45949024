package dra

import (
	"time"

	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
)

// Services of drivers, as they name them when they register.
const (
	serviceV1      = drav1.DRAPluginService
	serviceV1Beta1 = drav1beta1.DRAPluginService
	serviceHealth  = "v1alpha1.DRAResourceHealth"
)

// StateFile and HealthFile are names of files in the root directory.
const (
	StateFile  = "dra_manager_state"
	HealthFile = "dra_health_state"
)

const (
	metricOperations = "dra_operations_duration_seconds"
	metricCalls      = "dra_grpc_operations_duration_seconds"
	metricInUse      = "dra_resource_claims_in_use"

	operationPrepare   = "PrepareResources"
	operationUnprepare = "UnprepareResources"
	// anyDriver stands in metrics for all drivers together.
	anyDriver = "<any>"
)

const (
	callLimit = 45 * time.Second
	// wipeAfter is how long what a driver offered stays after it has gone.
	wipeAfter = 30 * time.Second

	// reconcileEvery is the pause between looks for claims of pods that are gone.
	reconcileEvery = 60 * time.Second

	minRetry = time.Second
	maxRetry = 30 * time.Second
	// maxWipeRetry bounds the pause between attempts to take offers away.
	maxWipeRetry = 5 * time.Minute
	// maxReconnect bounds the pause between attempts to reach a driver: one that is back
	// in time keeps what it offers.
	maxReconnect = 5 * time.Second

	healthTimeout = 30 * time.Second
	maxMessage    = 1024 // of a device's health
	// maxDevices bounds what a driver can make the agent keep.
	maxDevices = 16384
)
