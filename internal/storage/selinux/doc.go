// Package selinux computes the SELinux labels that files need so that a container can use them. It
// uses the same library as container runtimes, so that its labels match those of the containers.
package selinux
