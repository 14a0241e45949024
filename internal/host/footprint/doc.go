// Package footprint returns unused memory of the agent to the machine after a busy period, such as the start. A
// [Tidier] is notified of each change, and detects idle periods by itself. It has no lock.
package footprint
