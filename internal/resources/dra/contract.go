package dra

import (
	"time"

	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
)

// gRPC services, as drivers list them at registration.
const (
	serviceV1      = drav1.DRAPluginService
	serviceV1Beta1 = drav1beta1.DRAPluginService
	serviceHealth  = "v1alpha1.DRAResourceHealth"
)

// StateFile and HealthFile are the checkpoints, in the root directory.
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
	// anyDriver is the label of the sum over all drivers.
	anyDriver = "<any>"
)

const (
	callTimeout = 45 * time.Second
	// sliceGracePeriod is how long the ResourceSlices of a driver remain after it has stopped.
	sliceGracePeriod = 30 * time.Second

	// reconcilePeriod is the period in which claims of removed pods are looked for.
	reconcilePeriod = 60 * time.Second

	minRetry = time.Second
	maxRetry = 30 * time.Second
	// maxDeleteRetry bounds the back-off between attempts to delete ResourceSlices.
	maxDeleteRetry = 5 * time.Minute
	// maxReconnect bounds the back-off between attempts to connect to a driver. It is shorter than the grace period of
	// the ResourceSlices.
	maxReconnect = 5 * time.Second

	healthTimeout = 30 * time.Second
	maxMessage    = 1024 // of a device's health
	// maxDevices bounds the memory that a driver can take up.
	maxDevices = 16384
)
