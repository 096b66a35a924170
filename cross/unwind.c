/* The unwinder that std asks for backtraces. A release binary has no unwind tables
 * (cross/build.sh), so the real one finds nothing, and it adds 41 KB: musl's printf, strerror and
 * stdio. A panic still prints its message and place, and aborts. Tests are linked with the real
 * one. */

#include <stddef.h>
#include <stdint.h>

/* _URC_END_OF_STACK; 9 is _URC_FAILURE of the ARM EHABI, which ends a backtrace as well. */
int _Unwind_Backtrace(void *callback, void *argument)
{
    (void)callback;
    (void)argument;
#ifdef __arm__
    return 9;
#else
    return 5;
#endif
}

uintptr_t _Unwind_GetIP(void *context) { (void)context; return 0; }
uintptr_t _Unwind_GetIPInfo(void *context, int *before) { (void)context; *before = 0; return 0; }
uintptr_t _Unwind_GetCFA(void *context) { (void)context; return 0; }
void *_Unwind_FindEnclosingFunction(void *pc) { (void)pc; return NULL; }
uintptr_t _Unwind_GetLanguageSpecificData(void *context) { (void)context; return 0; }
uintptr_t _Unwind_GetRegionStart(void *context) { (void)context; return 0; }
uintptr_t _Unwind_GetTextRelBase(void *context) { (void)context; return 0; }
uintptr_t _Unwind_GetDataRelBase(void *context) { (void)context; return 0; }
void _Unwind_SetGR(void *context, int index, uintptr_t value) { (void)context; (void)index; (void)value; }
void _Unwind_SetIP(void *context, uintptr_t value) { (void)context; (void)value; }
void _Unwind_DeleteException(void *exception) { (void)exception; }
int _Unwind_RaiseException(void *exception) { (void)exception; __builtin_trap(); }
void _Unwind_Resume(void *exception) { (void)exception; __builtin_trap(); }

#ifdef __arm__
int _Unwind_VRS_Get(void *context, int class, uint32_t number, int form, void *value)
{
    (void)context; (void)class; (void)number; (void)form;
    *(uint32_t *)value = 0;
    return 0;
}
int _Unwind_VRS_Set(void *context, int class, uint32_t number, int form, void *value)
{
    (void)context; (void)class; (void)number; (void)form; (void)value;
    return 0;
}
int __gnu_unwind_frame(void *exception, void *context) { (void)exception; (void)context; return 9; }
int __aeabi_unwind_cpp_pr0(int state, void *block, void *context) { (void)state; (void)block; (void)context; return 9; }
int __aeabi_unwind_cpp_pr1(int state, void *block, void *context) { (void)state; (void)block; (void)context; return 9; }
int __aeabi_unwind_cpp_pr2(int state, void *block, void *context) { (void)state; (void)block; (void)context; return 9; }
#endif
