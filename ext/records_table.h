/*
** records_table.h: idem_records, the queryable view of every record, writable with care.
*/
#ifndef IDEM_RECORDS_TABLE_H
#define IDEM_RECORDS_TABLE_H

#include "conn.h"

extern const sqlite3_module idemRecordsModule;

#endif
