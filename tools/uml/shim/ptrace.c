// A wrapper of ptrace for User-Mode Linux up to 6.12. That kernel saves and
// restores the extended registers of its processes in a buffer of 2696 bytes,
// the size of the registers with AVX-512. The host reads as many bytes of them
// as requested, but writes them only if all are given. If the processor has
// more registers, such as those of AMX, every process of the guest would end at
// its first instruction (EFAULT, "ptrace set fp regs failed"). So the rest,
// which no program of the guest uses, is read from the process and written back
// unchanged.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define XSTATE 0x202 // NT_X86_XSTATE
enum { whole = 64 << 10 };

typedef long (*call)(int, pid_t, void *, void *);

long ptrace(enum __ptrace_request request, ...)
{
	static call real;
	static char all[whole]; // the kernel traces from one thread
	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);
	if (!real && !(real = (call)dlsym(RTLD_NEXT, "ptrace"))) {
		errno = ENOSYS;
		return -1;
	}
	long r = real(request, pid, addr, data);
	if (r == 0 || errno != EFAULT || request != PTRACE_SETREGSET || (long)addr != XSTATE)
		return r;
	struct iovec *part = data, full = {all, whole};
	if (real(PTRACE_GETREGSET, pid, addr, &full) != 0)
		return -1;
	if (part->iov_len > full.iov_len) {
		errno = EFAULT;
		return -1;
	}
	memcpy(all, part->iov_base, part->iov_len);
	return real(PTRACE_SETREGSET, pid, addr, &full);
}
