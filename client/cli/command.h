// The subcommands. Each takes its own arguments, argv[0] being its name, and returns the exit
// status; what it has to say about a failure is on standard error by then.
#ifndef LB_CLI_COMMAND_H
#define LB_CLI_COMMAND_H

int run_main(int argc, char **argv);
int ping_main(int argc, char **argv);
int query_main(int argc, char **argv);
int list_main(int argc, char **argv);
int stats_main(int argc, char **argv);
int break_main(int argc, char **argv);

#endif
