-- The schema of a place, where there are several; else it is that of 01_base.sql. Run once, in a new database.
DO $$
BEGIN
    IF 1 /* places */ = 1 THEN
        RETURN;
    ELSIF to_regnamespace('issuing') IS NULL THEN
        CREATE SCHEMA issuing;
    ELSIF EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'issuing'::regnamespace)
       OR EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'issuing'::regnamespace)
       OR NOT EXISTS (SELECT FROM pg_namespace n
                      WHERE n.oid = 'issuing'::regnamespace AND n.nspowner = current_user::regrole) THEN
        RAISE EXCEPTION 'the schema % is not empty, or belongs to another role than %', 'issuing'::regnamespace,
            current_user
            USING ERRCODE = '55000';
    END IF;
    REVOKE ALL ON SCHEMA issuing FROM PUBLIC;
END
$$;
