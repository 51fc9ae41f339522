// What the tool's exit statuses mean: those of sysexits.h where one fits.
#ifndef LB_CLI_EXIT_CODE_H
#define LB_CLI_EXIT_CODE_H

enum exit_code {
    EXIT_CODE_OK = 0,
    EXIT_CODE_FREE = 1,         // query: nobody holds it; break: nobody held it
    EXIT_CODE_USAGE = 64,       // the command line, or a value that the broker does not accept
    EXIT_CODE_CONFLICT = 65,    // the Redis key is not a lock
    EXIT_CODE_UNAVAILABLE = 69, // the broker or Redis cannot be reached, or takes nothing new now
    EXIT_CODE_INTERNAL = 70,    // a defect, or an answer that is not the protocol
    EXIT_CODE_BUSY = 75,        // run: held by another, also after the wait
    EXIT_CODE_LOST = 76,        // run: the lock was lost while the command ran
    EXIT_CODE_DENIED = 77,      // not allowed to this user
    EXIT_CODE_NOT_EXECUTABLE = 126,
    EXIT_CODE_NOT_FOUND = 127,
    EXIT_CODE_SIGNAL = 128, // and the number of the signal that ended the command
};

#endif
