/*
** shell_init.c: makes idem part of a program, here of the sqlite3 shell:
**
**     sqlite3_auto_extension((void (*)(void))sqlite3_idem_init);
**
** once, before the first connection; every connection has idem from then on, and nothing is loaded
** from anywhere. SQLite's shell.c calls the function below if it is compiled with
** -DSQLITE_SHELL_INIT_PROC=idem_shell_init. In a program of your own the line stands in main().
*/
#include <stdio.h>

#include <idem.h>

void idem_shell_init(void);

void idem_shell_init(void) {
  int rc = sqlite3_auto_extension((void (*)(void))sqlite3_idem_init);
  if (rc != SQLITE_OK) fprintf(stderr, "idem: %s\n", sqlite3_errstr(rc));
}
