// Package footprint returns memory of the agent to the machine after a busy time, such as the start. [Tidier] is
// notified of each change, and finds the lulls by itself. It has no lock.
package footprint
